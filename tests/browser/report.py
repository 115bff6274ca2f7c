"""Opens reports in headless Chromium and checks what a reader sees and can do.

    report.py BROWSER REPAIRED HOSTILE LONG PROPOSING [SCREENSHOTS]

The browser is driven over a pipe by its own protocol (--remote-debugging-pipe), so this needs only Python's standard
library. The reports are made by the tests in tests/records/report.rs and tests/acting_outside/reports.rs.
"""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
    "--remote-debugging-pipe",
]


class Browser:
    """A browser and its one page."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="legwork-chromium-")
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def connect():
            # The browser reads from 3 and writes to 4. The pipes may have these numbers themselves.
            reading, writing = os.dup(to_browser), os.dup(from_browser)
            reading, writing = os.dup2(reading, 30), os.dup2(writing, 31)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        arguments = [program, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(
            arguments, preexec_fn=connect, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Network", "Log"]:
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=1240, height=900, deviceScaleFactor=1, mobile=False)

    def read(self):
        while b"\0" not in self.buffer:
            piece = os.read(self.read_end, 1 << 20)
            if not piece:
                raise SystemExit("the browser ended")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def load(self, url):
        self.events = []
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            event = self.read()
            if "method" in event:
                self.events.append(event)

    def open(self, path, fragment=""):
        """Opens a report and returns the milliseconds until it is loaded and drawn."""
        self.load("about:blank")
        start = time.monotonic()
        self.load(pathlib.Path(path).absolute().as_uri() + fragment)
        self.call("Page.captureScreenshot", format="jpeg", quality=10)
        return (time.monotonic() - start) * 1000

    def eval(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, (script, result["exceptionDetails"])
        return result["result"].get("value")

    def key(self, key):
        text = {"text": key} if len(key) == 1 else {"windowsVirtualKeyCode": 13, "text": "\r"}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def screenshot(self, path, **options):
        image = self.call("Page.captureScreenshot", format="png", **options)
        pathlib.Path(path).write_bytes(base64.b64decode(image["data"]))

    def assert_quiet(self, page):
        """No message in the console, no violation of the policy, and no request but the one for the page."""
        for event in self.events:
            method, data = event["method"], event["params"]
            assert method not in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"), (page, data)
            if method == "Network.requestWillBeSent":
                assert data["request"]["url"].split("#")[0] == pathlib.Path(page).absolute().as_uri(), (page, data["request"])

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (SystemExit, OSError):
            pass
        self.process.wait(20)
        shutil.rmtree(self.profile, ignore_errors=True)


def is_seen(browser, anchor):
    """Whether an element has a place on the page: nothing around it is closed or hidden."""
    return browser.eval(f"document.getElementById({json.dumps(anchor)}).checkVisibility({{contentVisibilityAuto: false}})")


def check_without_scripts(browser, repaired, hostile):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    for page in [repaired, hostile]:
        browser.open(page)
        browser.assert_quiet(page)
        # This runs in the page, but not as the page's script.
        assert browser.eval("document.querySelector('#bar .tools').hidden"), "controls that do nothing"
        assert browser.eval("document.title") in ("parser-fix: completed", "job: turn_limit"), browser.eval("document.title")
        assert browser.eval("document.querySelectorAll('img, iframe, object, embed, video, link, form').length") == 0
        assert browser.eval("document.getElementById('job').parentElement.tagName") == "MAIN", "something swallowed the page"
    browser.open(repaired)
    assert not is_seen(browser, "explorer-2.t1.c1"), "a subagent's call is folded at first"
    browser.open(repaired, "#explorer-2.t1.c1")
    assert is_seen(browser, "explorer-2.t1.c1"), "a link opens what is around its target"
    assert is_seen(browser, "parent.t4.c1") and browser.eval("document.getElementById('parent.t4.c1').open"), "failures are open"
    browser.call("Emulation.setScriptExecutionDisabled", value=False)


def check_with_scripts(browser, page):
    browser.open(page)
    shown = "Array.from(document.querySelectorAll('.call[id]')).filter((it) => it.checkVisibility()).map((it) => it.id)"
    assert browser.eval("document.getElementById('errors').textContent") == "5", browser.eval("document.getElementById('errors').textContent")

    # The next error, by key and by button.
    browser.key("n")
    first = browser.eval("document.querySelector('.current').id")
    assert first == "explorer-2.t1.c1" and is_seen(browser, first), first
    assert browser.eval("document.getElementById('errors').textContent") == "1 of 5"
    browser.eval("document.getElementById('next').click()")
    assert browser.eval("document.querySelector('.current').id") == "explorer-3.t2"
    browser.key("p")
    browser.key("p")
    last = browser.eval("document.querySelector('.current').id")
    assert last == "parent.checks-1.c2"
    assert browser.eval("document.getElementById('errors').textContent") == "5 of 5", last
    top = browser.eval("document.querySelector('.current').getBoundingClientRect().top")
    assert 0 <= top < 900, f"the error is out of sight: {top}"

    # Filters.
    choose = "(id, value) => { const it = document.getElementById(id); it.type === 'checkbox' ? it.checked = value : it.value = value; it.dispatchEvent(new Event('change')); }"
    browser.eval(f"({choose})('by-tool', 'edit_file')")
    tools = browser.eval("Array.from(document.querySelectorAll('.call[data-tool]')).filter((it) => it.checkVisibility()).map((it) => it.dataset.tool)")
    assert tools == ["edit_file"] * 3, tools
    browser.eval(f"({choose})('by-tool', '')")
    browser.eval(f"({choose})('by-agent', 'explorer-3')")
    calls = browser.eval(shown)
    assert calls == ["parent.t1.c3", "explorer-3.t1.c1"], calls
    browser.eval(f"({choose})('by-agent', '')")
    browser.eval(f"({choose})('errors-only', true)")
    calls = browser.eval(shown)
    assert "explorer-2.t1.c1" in calls and "parent.t4.c1" in calls and "parent.t2.c1" not in calls, calls
    browser.eval(f"({choose})('by-tool', 'glob')")
    assert browser.eval("document.getElementById('nothing').checkVisibility()") and browser.eval(shown) == []
    browser.eval(f"({choose})('by-tool', '')")
    browser.eval(f"({choose})('errors-only', false)")
    assert "parent.t2.c1" in browser.eval(shown)

    # Search: `/`, words, Enter.
    browser.open(page)
    assert not is_seen(browser, "explorer-3.t1.c1")
    browser.key("/")
    for letter in "token_61 =":
        browser.key(letter)
    browser.key("Enter")
    assert browser.eval("document.getElementById('matches').textContent") == "1 of 1", browser.eval("document.getElementById('matches').textContent")
    assert is_seen(browser, "explorer-3.t1.c1"), "what is found is open"
    box = browser.eval("(() => { const it = [...CSS.highlights.get('found-current')][0].getBoundingClientRect(); return [it.top, it.height] })()")
    assert 0 < box[0] < 900 and box[1] > 0, f"the match is out of sight: {box}"

    # The timeline.
    browser.eval("document.querySelector('rect.bad').dispatchEvent(new MouseEvent('mouseover', { bubbles: true }))")
    assert "failed" in browser.eval("document.getElementById('hover').textContent")
    browser.eval("document.getElementById('zoom-in').click()")
    assert browser.eval("document.querySelector('.timeline svg').getBoundingClientRect().width > 1.5 * document.querySelector('.scroll').clientWidth")
    browser.eval("document.querySelector('rect.bad').parentElement.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true }))")
    assert browser.eval("location.hash.length > 1")

    levels = browser.eval("Array.from(document.querySelectorAll('h1, h2, h3, h4, h5, h6')).map((it) => Number(it.tagName[1]))")
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:])), levels
    assert browser.eval("document.documentElement.scrollWidth <= innerWidth"), "wider than the window"
    browser.assert_quiet(page)

    # Paper shows what is folded on the screen.
    browser.open(page)
    assert not is_seen(browser, "explorer-3.t1.c1")
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert is_seen(browser, "explorer-3.t1.c1") and not is_seen(browser, "bar")
    # A page of A4 without its margins.
    browser.call("Emulation.setDeviceMetricsOverride", width=718, height=900, deviceScaleFactor=1, mobile=False)
    cut = browser.eval("Array.from(document.querySelectorAll('body *')).filter((it) => it.getBoundingClientRect().right > innerWidth + 1).map((it) => it.outerHTML.slice(0, 80))")
    assert cut == [], f"cut off on paper: {cut[:3]}"
    browser.call("Emulation.setDeviceMetricsOverride", width=1240, height=900, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setEmulatedMedia", media="")


def check_proposed(browser, page):
    """What a run proposes is seen at once, refused calls are there, and nothing of it is live."""
    for width in [360, 1240]:
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        browser.open(page, "#proposed")
        assert browser.eval("document.documentElement.scrollWidth <= innerWidth"), f"wider than {width} pixels"
        bar, section = (browser.eval(f"document.getElementById('{name}').getBoundingClientRect().toJSON()") for name in ["bar", "proposed"])
        assert bar["bottom"] <= section["top"] + 1 and section["top"] < 900, f"{width} pixels: below the bar: {bar} {section}"
    titles = browser.eval("Array.from(document.querySelectorAll('#proposed summary b')).map((it) => it.textContent)")
    assert titles == ["summary", "review-1", "refused: comment", "refused: comment of helper-1"], titles
    shown = browser.eval("document.getElementById('proposed').innerText")
    for text in ["comment on #3", "<script>document.title='owned'</script>", "src/a.rs, lines 2 to 4", "mention at line 1, column 8"]:
        assert text in shown, (text, shown)
    assert browser.eval("document.querySelectorAll('#proposed a, #proposed img, #proposed script').length") == 0
    assert browser.eval("document.title") == "job: completed", browser.eval("document.title")
    browser.assert_quiet(page)


def main():
    program, repaired, hostile, long, proposing, *folder = sys.argv[1:]
    browser = Browser(program)
    try:
        check_without_scripts(browser, repaired, hostile)
        check_with_scripts(browser, repaired)
        print("filters, search, errors and timeline work")

        browser.open(hostile)
        browser.assert_quiet(hostile)
        assert browser.eval("document.title") == "job: turn_limit"
        for width in [360, 1240]:
            browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            assert browser.eval("document.documentElement.scrollWidth <= innerWidth"), f"wider than {width} pixels"
        print("hostile text stays text")
        check_proposed(browser, proposing)
        print("what is proposed is shown, and does nothing")

        for width in [400, 700, 1240]:
            browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            browser.open(repaired, "#explorer-2.t1.c1")
            bar, call = (browser.eval(f"document.getElementById('{name}').getBoundingClientRect().toJSON()") for name in ["bar", "explorer-2.t1.c1"])
            assert bar["bottom"] <= call["top"] < 900, f"{width} pixels: a link's target is below the bar: {bar} {call}"

        size = os.path.getsize(long)
        times = [browser.open(long) for _ in range(2)]
        turns = browser.eval("document.querySelectorAll('.turn').length")
        start = time.monotonic()
        browser.eval("(() => { const it = document.getElementById('search'); it.value = 'missing'; it.dispatchEvent(new Event('input')); it.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter' })); })()")
        found = browser.eval("document.getElementById('matches').textContent")
        searched = (time.monotonic() - start) * 1000
        assert size < 20_000_000 and turns == 2001 and found.startswith("1 of "), (size, turns, found)
        browser.assert_quiet(long)
        print(f"{turns} turns, {size / 1e6:.1f} MB: open in {min(times):.0f} ms, searched in {searched:.0f} ms")

        for scheme in ["light", "dark"]:
            browser.scheme(scheme)
            browser.call("Emulation.setDeviceMetricsOverride", width=1240, height=1130, deviceScaleFactor=1, mobile=False)
            browser.open(repaired)
            colour = browser.eval("getComputedStyle(document.body).backgroundColor")
            assert (colour == "rgb(255, 255, 255)") == (scheme == "light"), colour
            for target in folder:
                image = os.path.join(target, f"report-{scheme}.png")
                browser.screenshot(image)
                assert os.path.getsize(image) < 150_000, f"{image} is too large for the book"
    finally:
        browser.close()


main()
