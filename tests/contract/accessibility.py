"""What keeps a person from reading a page: expressions for a browser, each gives a list of what is wrong."""

POOR_CONTRAST = r"""(() => {
  const parse = (colour) => colour.match(/[\d.]+/g).map(Number);
  const channel = (value) => {
    const part = value / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  };
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ratio = (one, two) => {
    const [low, high] = [luminance(one), luminance(two)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] === undefined) return colour;
    }
    return [255, 255, 255];
  };
  const told = new Set(), texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode, at = text.parentElement;
    if (!text.data.trim() || !at.getClientRects().length || at.closest('.hidden, :disabled, svg')) continue;
    if (ratio(parse(getComputedStyle(at).color), behind(at)) < 4.5) told.add(`${at.className}: ${text.data}`);
  }
  return [...told];
})()"""
"""Texts that hardly stand out of what is behind them (WCAG 2.1, 1.4.3)."""

NAMELESS = """[...document.querySelectorAll('a, button, input, [role=grid], [role=progressbar]')]
  .filter((each) => !(each.innerText || each.getAttribute('aria-label')) || each.matches('a[role]'))
  .map((each) => each.outerHTML)"""
"""What a screen reader has no name for: a role of another kind hides that of a link from it."""
