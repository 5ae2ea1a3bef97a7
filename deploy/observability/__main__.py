"""Write deploy/prometheus and deploy/grafana."""

from pathlib import Path

from deploy.observability.files import files


def main() -> None:
    root = Path(__file__).resolve().parents[1]
    for name, text in files().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
