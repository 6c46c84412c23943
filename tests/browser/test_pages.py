# SPDX-License-Identifier: Apache-2.0
"""Reports in a browser: nothing fails, nothing is fetched, everything is drawn, readable, and printable."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import WIDTHS, Open

NAMES = ("arms", "h200", "rehearsal", "failed", "hostile", "comparison")

# Texts that a reader sees, smaller than 11 px. Folded and hidden ones do not count.
SMALL_TEXTS = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.textContent.trim() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(parent.tagName)) continue;
    if (!parent.checkVisibility() || parent.closest(".hidden-text")) continue;
    const size = parseFloat(getComputedStyle(parent).fontSize);
    const at = parent.ownerSVGElement ? parent.getScreenCTM() : null, scale = at ? Math.hypot(at.a, at.b) : 1;
    if (size * scale < 10.95) found.push(size * scale + " " + node.textContent.trim().slice(0, 40));
  }
  return found;
}"""

# Texts whose contrast with what lies behind them is below `least` (WCAG 2.2, 1.4.3).
LOW_CONTRAST = """least => {
  const channel = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const parse = text => { const n = (text.match(/[\\d.]+/g) || []).map(Number); return n.length < 3 ? null : [n[0], n[1], n[2], n.length > 3 ? n[3] : 1]; };
  const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const c = parse(getComputedStyle(at).backgroundColor);
      if (c && c[3] > 0.99) return c;
    }
    return [255, 255, 255, 1];
  };
  const found = new Set(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.textContent.trim() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(parent.tagName)) continue;
    if (!parent.checkVisibility() || parent.closest(".hidden-text")) continue;
    const style = getComputedStyle(parent), inside = parent.ownerSVGElement;
    const ink = parse(inside ? style.fill : style.color), back = behind(inside ? inside.parentElement : parent);
    if (!ink) continue;
    const [a, b] = [light(ink), light(back)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least) found.add(ratio.toFixed(2) + " " + node.textContent.trim().slice(0, 40));
  }
  return [...found];
}"""

# Pairs of texts inside one plot or drawing that lie upon each other.
OVERLAPS = """() => {
  const found = [];
  document.querySelectorAll(".js-plotly-plot .main-svg, svg.topology").forEach(svg => {
    const boxes = [...svg.querySelectorAll("text")].filter(t => t.textContent.trim() && t.checkVisibility())
      .map(t => [t.textContent.trim(), t.getBoundingClientRect()]).filter(p => p[1].width > 0);
    boxes.forEach(([text, a], i) => boxes.slice(i + 1).forEach(([other, b]) => {
      const x = Math.min(a.right, b.right) - Math.max(a.left, b.left), y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (x > 2 && y > 4) found.push((svg.closest("[id]") || svg).id + ": " + text + " / " + other);
    }));
  });
  return found;
}"""

DRAWN = """() => [...document.querySelectorAll(".plot")].map(plot => ({
  id: plot.id,
  marks: plot.querySelectorAll(".trace path, .trace .point, .boxlayer path, .scatterlayer path").length,
  fits: plot.querySelector(".main-svg") !== null
    && plot.querySelector(".main-svg").getBoundingClientRect().width <= plot.getBoundingClientRect().width + 1,
}))"""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_says_nothing_fetches_nothing_and_draws_every_chart(
    pages: dict[str, Path], open_page: Open, name: str, width: int
) -> None:
    opened = open_page(pages[name], width)
    assert opened.said == []
    assert opened.requests == [pages[name].as_uri()]
    drawn = opened.page.evaluate(DRAWN)
    assert [plot["id"] for plot in drawn if not plot["marks"] or not plot["fits"]] == []
    assert bool(drawn) == (opened.page.evaluate("typeof Plotly") == "object")
    assert opened.page.evaluate("window.stolen") is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_readable(pages: dict[str, Path], open_page: Open, name: str, width: int, scheme: str) -> None:
    page = open_page(pages[name], width, scheme).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(SMALL_TEXTS) == []
    assert page.evaluate(LOW_CONTRAST, 4.5) == []
    assert page.evaluate(OVERLAPS) == []
    # What is folded is read by some, too.
    page.evaluate("document.querySelectorAll('details').forEach(item => { item.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(SMALL_TEXTS) == []
    assert page.evaluate(LOW_CONTRAST, 4.5) == []


def test_a_reader_changes_between_light_and_dark_and_the_charts_follow(pages: dict[str, Path], open_page: Open) -> None:
    page = open_page(pages["arms"], scheme="dark").page

    def looks() -> tuple[str, str]:
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return back, page.evaluate("getComputedStyle(document.querySelector('.plot .xtick text')).fill")

    dark = looks()
    page.click("#theme")
    light = looks()
    assert dark[0] != light[0] and dark[1] != light[1]
    page.emulate_media(color_scheme="light")
    page.emulate_media(color_scheme="dark")
    assert looks() == light, "what a reader chose holds when the machine's own theme changes"
    page.click("#theme")
    assert looks() == dark


def test_without_a_choice_a_page_follows_the_machine_even_without_its_script(
    pages: dict[str, Path], open_page: Open
) -> None:
    backs = []
    for script in (True, False):
        for scheme in ("light", "dark"):
            page = open_page(pages["rehearsal"], scheme=scheme, script=script).page
            backs.append(page.locator("body").evaluate("element => getComputedStyle(element).backgroundColor"))
    assert backs[0] != backs[1]
    assert backs[:2] == backs[2:]


def test_an_arm_has_one_colour_on_the_whole_page(pages: dict[str, Path], open_page: Open) -> None:
    page = open_page(pages["arms"]).page
    lines = page.evaluate(
        """() => [...document.querySelectorAll(".plot")].flatMap(plot => plot.data.map(
             trace => [trace.name, (trace.line || trace.marker || {}).color]))"""
    )
    keys = page.evaluate(
        """() => [...document.querySelectorAll(".key")].map(key => [key.parentElement.firstChild === key
             ? key.nextSibling && key.nextSibling.textContent.trim() : null, getComputedStyle(key).color])"""
    )
    probe = """color => { const e = document.createElement("i"); e.style.color = color; document.body.append(e);
               const c = getComputedStyle(e).color; e.remove(); return c; }"""
    for arm in ("pd", "tp2", "dp2"):
        drawn = {page.evaluate(probe, colour) for name, colour in lines if name == arm}
        listed = {colour for name, colour in keys if name == arm}
        assert len(drawn) == 1
        assert drawn == listed


def test_a_figure_that_is_clicked_says_where_it_came_from(pages: dict[str, Path], open_page: Open) -> None:
    page = open_page(pages["arms"]).page
    figure = page.locator("table [data-figure]").first
    figure.click()
    said = page.locator("#source code").inner_text()
    assert said == f"pdlab explain {pages['arms'].parent.name} {figure.get_attribute('data-figure')}"
    page.click("#source button")
    assert not page.locator("#source").is_visible()


@pytest.mark.parametrize("script", [True, False], ids=["with-script", "without-script"])
def test_what_is_folded_on_the_screen_is_open_on_paper(
    pages: dict[str, Path], open_page: Open, tmp_path: Path, script: bool
) -> None:
    hidden = """() => [...document.querySelectorAll("details")].filter(
        fold => [...fold.children].some(one => one.tagName !== "SUMMARY" && !one.checkVisibility())).length"""
    for name in ("arms", "failed"):
        page = open_page(pages[name], script=script).page
        folds = page.evaluate(hidden)
        assert folds > 3, "they are folded on the screen"
        page.emulate_media(media="print")
        if script:
            page.evaluate(f"window.addEventListener('beforeprint', () => {{ window.printed = ({hidden})() }})")
            page.pdf(path=str(tmp_path / "page.pdf"), format="A4")
            assert page.evaluate("window.printed") == 0
        assert page.evaluate(hidden) == 0
        page.emulate_media(media="screen")
        assert page.evaluate(hidden) == folds, "the screen is as it was"


def test_paper_is_white_and_every_chart_fits_on_it(pages: dict[str, Path], open_page: Open, tmp_path: Path) -> None:
    page = open_page(pages["arms"], scheme="dark").page
    page.evaluate(
        """() => window.addEventListener("beforeprint", () => { window.printed = {
             back: getComputedStyle(document.documentElement).getPropertyValue("--page").trim(),
             widths: [...document.querySelectorAll(".plot .main-svg")].map(svg => svg.getBoundingClientRect().width)}; })"""
    )
    page.pdf(path=str(tmp_path / "page.pdf"), format="A4")
    printed = page.evaluate("window.printed")
    assert printed["back"] == "#fbfbfa"
    # Two charts beside each other on A4 with margins of 12 mm: 703 px.
    assert max(printed["widths"]) <= 340
    assert (tmp_path / "page.pdf").stat().st_size > 50_000
    assert page.evaluate("document.documentElement.dataset.theme") == "dark", "the screen is as it was"
