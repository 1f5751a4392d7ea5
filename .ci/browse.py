"""Looks at the built site in a headless browser: ``python .ci/browse.py site``

Every page is opened, on a screen and on a phone. It fails where a link leads nowhere, a picture is not drawn, something is asked of
another host, the console has an error, a page is wider than its window, or the search does not find what it must.
"""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import sys
import threading
from urllib.parse import urldefrag, urljoin

from playwright.sync_api import Browser, Page, Playwright, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Chromium's own questions to its maker, and its sandbox, which the root of a container may not have.
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
WINDOWS = ((1280, 900), (390, 800))  # a screen's and a phone's, in pixels
SEARCHES = {"vmap": "func", "NaN": "anomaly", "addmm": "operators", "recompiles": "troubleshooting"}  # what is typed, and a page that is found


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def serve(directory: str) -> str:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=directory))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


class Visit:
    """What is wrong with the pages of one site, as one browser window sees it."""

    def __init__(self, page: Page, root: str) -> None:
        self.page, self.root = page, root
        self.wrong: list[str] = []
        self.anchors: dict[str, set[str]] = {}
        self.links: list[tuple[str, str]] = []
        page.on("console", lambda message: message.type == "error" and self.wrong.append(f"{page.url}: console: {message.text}"))
        page.on("pageerror", lambda error: self.wrong.append(f"{page.url}: {error}"))
        page.on("request", lambda request: self.same_host(request.url) or self.wrong.append(f"{page.url} asks {request.url}"))
        page.on("response", lambda answer: answer.status < 400 or self.wrong.append(f"{page.url}: {answer.status} for {answer.url}"))

    def same_host(self, url: str) -> bool:
        return url.startswith((self.root, "data:", "blob:"))

    def everything(self) -> None:
        """From the first page to all that it leads to, and then each link's place in its page."""
        waiting, seen = [self.root], {self.root}
        while waiting:
            for link in self.one(waiting.pop()):
                if link not in seen:
                    seen.add(link)
                    waiting.append(link)
        for origin, link in self.links:
            url, place = urldefrag(link)
            if place and url in self.anchors and place not in self.anchors[url]:
                self.wrong.append(f"{origin}: no place {place} in {url}")

    def one(self, url: str) -> list[str]:
        """Opens a page; the pages of this site to which it links."""
        if url.rsplit("/", 1)[-1].count("."):  # a file to read or to download
            if self.page.request.get(url).status >= 400:
                self.wrong.append(f"{url} is not there")
            return []
        self.resize(WINDOWS[0])  # while nothing is shown: what slides in or out is not where it will be
        self.page.goto(url, wait_until="load")
        self.anchors[url] = set(self.page.evaluate("[...document.querySelectorAll('[id], a[name]')].map(e => e.id || e.name)"))
        for picture in self.page.evaluate("[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"):
            self.wrong.append(f"{url}: the picture {picture} is not drawn")
        for window in WINDOWS:
            self.resize(window)
            if self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1"):
                self.wrong.append(f"{url} is wider than a window of {window[0]} pixels")
        links = [urljoin(url, link) for link in self.page.evaluate("[...document.links].map(a => a.href)")]
        links = [link for link in links if link.startswith(self.root)]
        self.links += [(url, link) for link in links]
        return [urldefrag(link)[0] for link in links]

    def resize(self, window: tuple[int, int]) -> None:
        self.page.set_viewport_size({"width": window[0], "height": window[1]})

    def search(self, words: str, expected: str) -> None:
        self.page.goto(self.root, wait_until="load")
        box = self.page.locator("input.md-search__input")
        if not box.is_visible():
            self.page.locator("label.md-header__button[for=__search]").click()
        for _ in range(30):  # what is typed before the page listens is lost
            box.fill("")
            box.press_sequentially(words)
            self.page.wait_for_timeout(1000)
            found = self.page.evaluate("[...document.querySelectorAll('.md-search-result__link')].map(a => a.href)")
            if any(expected in link for link in found):
                return
        self.wrong.append(f"in a window of {self.page.viewport_size['width']} pixels the search for {words} finds {found}, not {expected}")


def launch(playwright: Playwright) -> Browser:
    browser = os.environ.get("BROWSER_PATH") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"no browser: install one of {', '.join(BROWSERS)}, or give its path in BROWSER_PATH")
    return playwright.chromium.launch(executable_path=browser, args=OPTIONS)


def main(directory: str) -> int:
    with sync_playwright() as playwright:
        window = launch(playwright)
        visit = Visit(window.new_page(), serve(directory))
        visit.everything()
        for size in WINDOWS:
            visit.resize(size)
            for words, expected in SEARCHES.items():
                visit.search(words, expected)
        window.close()
    print("\n".join(dict.fromkeys(visit.wrong)))
    print(f"{len(visit.anchors)} pages, {len(set(visit.wrong))} things wrong")
    return bool(visit.wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
