"""`twinlog ui`, as a person sees it in a browser, and as a stranger meets its port."""

import asyncio
import hashlib
import json
import os
import re
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

import twinlog.cli.ui
from contract.accessibility import NAMELESS, POOR_CONTRAST
from contract.browser import Tab, new_tab
from contract.ui_services import START_SECONDS, Services, UiRig, serving, ui
from twinlog.cli.ui.feed import Feed
from twinlog.cli.ui.serving import MAX_STREAMS, MAX_STREAMS_OF_ADDRESS
from twinlog.local.certificates import Authority
from twinlog.testing.brokers import eventually

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MAKE_IMAGES_VARIABLE = "TWINLOG_TESTS_MAKE_IMAGES"
MADE_OF = "made-of.sha256"
LINES_ARE_DRAWN = """((lines) => lines.length === 5 && lines.every((line) =>
  line.getContext('2d').getImageData(0, 0, line.width, line.height).data.some((value) => value > 0)))
  ([...document.querySelectorAll('.spark canvas')])"""

VIEWS = ("flows", "partitions", "groups", "gaps", "topology", "migration", "services")

CHOSEN_ROW_IS_SAID = """((grid) => grid.getAttribute('role') === 'grid'
  && document.getElementById(grid.getAttribute('aria-activedescendant'))?.ariaSelected === 'true')
  (document.activeElement)"""
"""By a screen reader: the row that the focused grid points to."""


@asynccontextmanager
async def looking(rig: UiRig, *arguments: str) -> AsyncIterator[tuple[Tab, str, Services]]:
    async with AsyncExitStack() as stack:
        tab = await stack.enter_async_context(new_tab())
        services = await stack.enter_async_context(serving(rig))
        url = await stack.enter_async_context(ui(services, *arguments))
        yield tab, url, services


async def test_a_person_sees_flows_and_walks_through_all_views_by_keyboard() -> None:
    rig = UiRig(lag=100, members=1)
    async with looking(rig) as (tab, url, services):
        await tab.open(url)
        await tab.sees("2 problems", "A → B", "In trouble", "19 RUNNING", "1 FAULTED", "1,234", "0.25 s")
        await tab.sees("1 partition is FAULTED", "15 source offsets recorded as lost")
        await tab.sees(
            "RECORD_TOO_LARGE in 1 partition", "Offsets of groups", "raise that of the source topic"
        )
        await tab.holds("document.title === '2 problems · Twinlog'")
        await is_copied(tab, "twinlog gaps 'A->B'", services)
        await tab.go_by_keyboard("nav [href='#/partitions']")
        await tab.sees("topic-00000-0", "20 of 20 partitions", "RECORD_TOO_LARGE")
        await tab.go_by_keyboard(".list", "ArrowDown")
        await tab.sees("raise that of the source topic", "record at offset 900", "900 of 1,000")
        await tab.holds(CHOSEN_ROW_IS_SAID)
        await tab.go_by_keyboard(".toggle")
        await tab.sees("1 of 20 partitions")
        await tab.press("Enter")
        await tab.go_by_keyboard("#search", None)
        await tab.type("topic-00001-7")
        await tab.sees("1 of 20 partitions")
        await tab.press("Escape")
        await tab.go_by_keyboard("nav [href='#/groups']")
        await tab.sees("group-00004", "EXACT", "5 of 5 groups")
        await tab.go_by_keyboard("nav [href='#/gaps']")
        await tab.sees("topic-00001-3", "RETENTION", "15", "d ago")
        await tab.go_by_keyboard("nav [href='#/topology']")
        await tab.sees("✕ 1 FAULTED", "ALIVE", "✓ reachable", "Paths that heartbeats took")
        await tab.holds("document.querySelectorAll('svg.graph .edge').length === 1")
        await tab.go_by_keyboard("nav [href='#/migration']")
        await tab.sees(
            *("NO-GO", "3 checks fail", "Topics that hold it up", "100 records"),
            *("None: producers can write to A", "twinlog failover plan 'A->B'"),
            "1 of 5 groups has members on A: stop its consumers",
        )
        await tab.go_by_keyboard("nav [href='#/services']")
        await tab.sees("configsync", "SERVING", "ready", "OWNER", "Cluster A", "source reaches it")
        assert tab.complaints == []
        assert [each for each in tab.requests if not each.startswith((url, "data:"))] == []


async def is_copied(tab: Tab, command: str, services: Services) -> None:
    """A press on the button beside the command; what is copied asks the same services."""
    place = f"""[...document.querySelectorAll('.command')]
      .find((each) => each.querySelector('code').innerText === {json.dumps(command)})"""
    assert await tab.run(f"({place}).querySelector('code').title") == " ".join(
        [command, *services.arguments()]
    )
    await tab.run(f"({place}).querySelector('button').click()")
    await tab.holds(
        "[...document.querySelectorAll('.command [role=status]')]"
        ".some((each) => ['copied', 'selected'].includes(each.innerText))"
    )


async def test_what_changes_in_a_service_changes_on_the_page() -> None:
    rig = UiRig(faulted=0)
    async with looking(rig) as (tab, url, _):
        await tab.open(f"{url}#/migration")
        await tab.sees("Groups can move to B now", "the lag is 0", "after 0.25 s", "nothing blocks the plan")
        assert "NO-GO" not in await tab.text()
        rig.heartbeats = False
        rig.lag = 4321
        await tab.sees("NO-GO", "Do not move groups yet", "the path is SILENT", "4,321 records left")
        rig.heartbeats = True
        rig.lag = 0
        await tab.sees("the lag is 0", "after 0.25 s", "Groups can move to B now")
        await tab.go_by_keyboard("nav [href='#/flows']")
        await tab.sees("What changed", "A → B: over HEARTBEAT_MISSING", "UTC (just now)")


async def test_the_migration_view_begins_with_what_both_clusters_show() -> None:
    rig = UiRig(faulted=0)
    async with looking(rig) as (tab, url, _):
        await tab.open(f"{url}#/migration")
        await tab.sees("Do producers still write to A?", "Yes last record just now")
        await tab.sees("Yes 20 partitions compared just now", "No no group has members on B")
        rig.producers = False
        rig.different = 2
        await tab.sees("No no record since the source service started", "No 2 partitions differ", "NO-GO")


async def test_the_migration_view_shows_the_services_own_plan() -> None:
    rig = UiRig(lag=77, members=1, blockers=("a fence of another move is up",))
    async with looking(rig) as (tab, url, services):
        await tab.open(f"{url}#/migration")
        await tab.sees("NO-GO", "The checkpoint service can move the groups", "a fence of another move is up")
        await tab.sees("4 of 5", "groups continue on B", "topic-00000: 77 records · paused by root", "orders")
        await services.stop("checkpoint")
        await tab.sees("not known: ")
        assert tab.complaints == []


async def test_the_migration_view_believes_the_plan_about_groups_as_the_command_does() -> None:
    """The last look at the groups may be older than their first offset sync."""
    rig = UiRig(faulted=0, verdict="NO_SYNC")
    async with looking(rig) as (tab, url, services):
        await tab.open(f"{url}#/migration")
        await tab.sees("Groups can move to B now")
        await services.stop("checkpoint")
        await tab.sees("NO-GO", "not known: ", "Groups have offsets on B")


async def test_a_plan_is_asked_for_once_by_all_browsers_and_not_for_flows_that_nobody_told_of() -> None:
    rig = UiRig()
    async with serving(rig) as services, ui(services) as url, aiohttp.ClientSession() as session:

        async def planned() -> bool:
            async with session.get(f"{url}api/plan?flow=A->B") as answer:
                assert answer.status == 200, "the page has not heard of the flow yet"
                plan: dict[str, Any] = await answer.json()
                return bool(plan["groups"] == 5)

        await eventually(planned)
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(planned(), name=f"browser {number}")
        for unknown in ("B->A", "", "%3Cscript%3E"):
            async with session.get(f"{url}api/plan?flow={unknown}") as refused:
                assert refused.status == 404
        assert rig.plans <= 3, "a plan is kept for ten seconds"


async def test_what_goes_away_is_said_and_what_it_told_stays() -> None:
    async with looking(UiRig()) as (tab, url, services):
        await tab.open(f"{url}#/partitions")
        await tab.sees("topic-00001-9")
        await services.stop("source")
        await tab.sees("source is not reachable", "The page keeps its last data", "topic-00001-9")
        await services.stop("heartbeat")
        await tab.sees("heartbeat is not reachable")
        await tab.go_by_keyboard("nav [href='#/flows']")
        await tab.sees("Are both ends equal?", "Unknown the source service does not say", "Not known")
        assert "A → B: over" not in await tab.text(), "nobody says so"
        for service in ("checkpoint", "configsync"):
            await services.stop(service)
        await tab.sees("no service answers (of 4)", "The page keeps its last data", "as of", "A → B")
        await services.stop_page()
        await tab.sees("Disconnected.", "The page shows its last data", "no service answers")
        await tab.holds("document.title === 'Disconnected · Twinlog'")


async def test_the_topology_without_the_heartbeat_service_is_told_by_the_others() -> None:
    async with serving(UiRig()) as services:
        await services.stop("heartbeat")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "twinlog", "topology"),
            *services.arguments(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(START_SECONDS):
            told, complaint = await process.communicate()
    assert process.returncode == 1
    assert told.decode().splitlines() == [
        "A",
        "└─ B  1 FAULTED, 19 RUNNING, lag 0; heartbeats UNKNOWN: PEER_UNAVAILABLE",
    ]
    assert "PEER_UNAVAILABLE" in complaint.decode()


async def test_brokers_that_do_not_answer_are_told_beside_their_cluster_and_once_at_length() -> None:
    async with looking(UiRig(silent_brokers=(2, 3), faulted=0)) as (tab, url, _):
        await tab.open(f"{url}#/topology", width=300)
        await tab.sees("! but for broker 2, 3", "brokers 2, 3 of B do not answer")
        first = "document.querySelector('.first')"
        await tab.holds(f"{first}.offsetHeight < 4 * parseFloat(getComputedStyle({first}).fontSize)")


async def test_an_unknown_flow_and_an_unknown_view_in_the_url_are_said() -> None:
    async with looking(UiRig()) as (tab, url, _):
        await tab.open(f"{url}#/flows?flow=%3Cimg%20src=x%20onerror=alert(1)%3E")
        await tab.sees("There is no flow “<img src=x onerror=alert(1)>” here", "Flows: A->B")
        await tab.open(f"{url}#/nowhere")
        await tab.sees("There is no view “nowhere”")
        assert tab.complaints == []


async def test_the_page_fits_from_80_pixels_to_4k_in_light_and_dark() -> None:
    async with looking(UiRig(lag=100)) as (tab, url, _):
        for dark in (False, True):
            await tab.open(url, dark=dark)
            await tab.sees("A → B")
            for width in (80, 320, 1280, 3840):
                await tab.resize(width, 2160 if width > 2000 else 800)
                for view in VIEWS:
                    await tab.run(f"location.hash = '#/{view}'")
                    await tab.holds("document.querySelector('main').innerText.length > 20")
                    await tab.holds("document.documentElement.scrollWidth <= innerWidth")
                    if width == 1280:
                        await tab.holds("document.querySelector('header').innerText.includes('live')")
                        assert await tab.run(POOR_CONTRAST) == []
                        assert await tab.run(NAMELESS) == []
            background = await tab.run("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, background[4:-1].split(","))) < 200) is dark
            await tab.ask("Page.navigate", url="about:blank")


async def test_ten_thousand_partitions_and_five_thousand_groups_are_lists_of_what_is_on_the_screen() -> None:
    async with looking(UiRig(partitions=10_000, groups=5_000)) as (tab, url, _):
        await tab.open(f"{url}#/partitions")
        await tab.sees("10,000 of 10,000 partitions")
        await tab.holds("document.querySelectorAll('.row').length < 100")
        await tab.run("document.querySelector('.list').focus()")
        await tab.press("End")
        await tab.sees("topic-00999-9")
        await tab.run("document.getElementById('search').focus()")
        await tab.type("topic-00777-7")
        await tab.sees("1 of 10,000 partitions", "topic-00777-7")
        await tab.press("Escape")
        await tab.go_by_keyboard("nav [href='#/groups']")
        await tab.sees("5,000 of 5,000 groups")
        await tab.holds("document.querySelectorAll('.row').length < 100")


async def test_images_of_the_docs_show_what_a_person_sees(tmp_path: Path) -> None:
    """Written into docs/images where the variable asks for it; else only that a picture comes."""
    folder = IMAGES if os.environ.get(MAKE_IMAGES_VARIABLE) else tmp_path
    folder.mkdir(exist_ok=True)
    rig = UiRig(partitions=240, groups=30, faulted=3, lag=300, rate=12_340, wave=0.3)
    async with looking(rig) as (tab, url, _):
        views = (
            ("flows", "A → B"),
            ("partitions", "RECORD_TOO_LARGE"),
            ("migration", "Groups can move to B now"),
        )
        for view, words in views:
            if view == "migration":
                rig.faulted, rig.lag = 0, 0
            height = 960 if view == "migration" else 700
            await tab.open(f"{url}#/{view}", width=1200, height=height, dark=view == "migration")
            await tab.sees(words)
            if view == "migration":
                await tab.holds("!document.querySelector('.badge') && !document.getAnimations().length")
            if view == "flows":
                if folder is IMAGES:
                    await tab.holds("/last [6-9]\\d s/.test(document.body.innerText)")
                    await tab.sees("last 2 min")
                await tab.holds(LINES_ARE_DRAWN)
            if view == "partitions":
                await tab.go_by_keyboard(".list", "ArrowDown")
                await tab.sees("900 of 1,000")
            picture = await tab.screenshot()
            assert picture[:4] == b"\x89PNG"
            await asyncio.to_thread((folder / f"ui-{view}.png").write_bytes, picture)
    await asyncio.to_thread((folder / MADE_OF).write_text, page_digest())


def page_digest() -> str:
    """Digest of all files of the page but the libraries and the alerts, which no image shows."""
    page = Path(twinlog.cli.ui.__file__).parent / "page"
    digest = hashlib.sha256()
    for file in sorted(each for each in page.glob("*.*") if each.name != "alerts.html"):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest() + "\n"


def test_the_images_of_the_docs_are_of_the_page_as_it_is() -> None:
    shown = {
        image
        for page in (IMAGES.parent).glob("*.md")
        for image in re.findall(r"\]\(images/(ui-[a-z]+\.png)\)", page.read_text())
    }
    assert shown == {file.name for file in IMAGES.glob("ui-*.png")}
    told = (
        f"the page has changed: make its images again, {MAKE_IMAGES_VARIABLE}=1 pytest {__file__} -k images"
    )
    assert (IMAGES / MADE_OF).read_text() == page_digest(), told


async def test_browsers_beyond_the_bound_are_refused_politely_and_share_one_watch() -> None:
    rig = UiRig()
    async with serving(rig) as services, ui(services) as url, AsyncExitStack() as stack:

        async def session_at(address: str) -> aiohttp.ClientSession:
            connector = aiohttp.TCPConnector(limit=0, local_addr=(address, 0))
            return await stack.enter_async_context(aiohttp.ClientSession(connector=connector))

        async def opens(session: aiohttp.ClientSession) -> None:
            answer = await stack.enter_async_context(session.get(f"{url}api/stream"))
            assert answer.status == 200
            assert (await answer.content.readline()).startswith(b"event: snapshot")

        async def is_refused(session: aiohttp.ClientSession) -> None:
            async with session.get(f"{url}api/stream") as refused:
                assert refused.status == 503
                assert refused.headers["Retry-After"] == "10"
                assert (await refused.json())["reason"] == "TOO_MANY_WATCHERS"

        greedy, other, third = [await session_at(f"127.0.0.{number}") for number in (1, 2, 3)]
        for _ in range(MAX_STREAMS_OF_ADDRESS):
            await opens(greedy)
        for _ in range(500):
            await is_refused(greedy)
        for _ in range(MAX_STREAMS - MAX_STREAMS_OF_ADDRESS):
            await opens(other)
        for _ in range(500):
            await is_refused(third)
        assert rig.watches < 100


async def test_another_sites_name_for_this_machine_and_its_pages_are_refused() -> None:
    async with serving(UiRig()) as services, ui(services) as url, aiohttp.ClientSession() as session:
        for path in ("", "api/stream", "api/words"):
            async with session.get(f"{url}{path}", headers={"Host": "evil.example"}) as refused:
                assert refused.status == 421
        async with session.get(url) as page:
            policy = page.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
        for site in ("cross-site", "same-site"):
            async with session.get(f"{url}api/stream", headers={"Sec-Fetch-Site": site}) as refused:
                assert refused.status == 403
        async with session.post(f"{url}api/stream") as refused:
            assert refused.status == 405
        async with session.get(f"{url}../../etc/passwd") as refused:
            assert refused.status == 404


async def test_with_tokens_a_person_signs_in_and_a_stranger_sees_nothing(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann viewer {hashlib.sha256(b'a-long-token').hexdigest()}\n")
    async with looking(UiRig(), "--tokens", str(tokens)) as (tab, url, _):
        async with aiohttp.ClientSession() as session:
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                async with session.get(f"{url}api/stream", headers=headers) as refused:
                    assert refused.status == 401
        await tab.open(url)
        await tab.sees("This page needs a token")
        await tab.run("document.getElementById('token').focus()")
        await tab.type("a-long-token")
        await tab.press("Enter")
        await tab.run("document.querySelector('form')?.requestSubmit()")
        await tab.sees("A → B", "19 RUNNING")


def seen_at(port: int, ca: bytes) -> str:
    """The certificate that the page shows to a browser which trusts this CA."""
    context = ssl.create_default_context(cadata=ca.decode())
    with (
        socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        shown = secure.getpeercert(binary_form=True)
    assert shown is not None
    return ssl.DER_cert_to_PEM_cert(shown)


def read(name: str) -> str:
    return Path(name).read_text()


def write(name: str, content: bytes) -> None:
    Path(name).write_bytes(content)


async def test_the_page_shows_a_renewed_certificate_and_never_a_bad_one(tmp_path: Path) -> None:
    authority = Authority()
    files = authority.files(tmp_path, "page", "127.0.0.1")
    first = read(files.certificate)
    places = ("--certificate", files.certificate, "--key", files.key)
    async with serving(UiRig()) as services, ui(services, *places) as url:
        port = int(url.rstrip("/").rsplit(":", 1)[1])
        assert await asyncio.to_thread(seen_at, port, authority.pem) == first
        renewed = authority.sign("page", "127.0.0.1")
        write(files.certificate, renewed.chain)  # without its key for a moment
        assert await asyncio.to_thread(seen_at, port, authority.pem) == first
        write(files.key, renewed.key)

        async def shows_the_renewed_one() -> bool:
            return await asyncio.to_thread(seen_at, port, authority.pem) == renewed.chain.decode()

        await eventually(shows_the_renewed_one)


async def failed(*arguments: str) -> str:
    """What a `twinlog ui` that does not start says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "twinlog", "ui", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(START_SECONDS):
        _, told = await process.communicate()
    assert process.returncode == 2
    return told.decode()


async def test_a_port_open_to_others_without_tls_and_tokens_and_a_port_in_use_are_refused() -> None:
    assert "no TLS and no authentication" in await failed("--listen", "0.0.0.0:0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "name another port" in await failed("--listen", f"127.0.0.1:{port}")


def test_a_browser_far_behind_gets_a_snapshot_and_others_only_what_changed() -> None:
    feed = Feed(["flows"])
    feed["flows"].put("A->B", {"lag": 0})
    assert feed.next_turn()
    for lag in range(1, 40):
        feed["flows"].put("A->B", {"lag": lag})
        assert feed.next_turn()
    assert b"event: snapshot" in feed.since(0)[0]
    assert feed.since(feed.turn - 1)[0].count(b'"lag":39') == 1
    assert not feed.next_turn()
