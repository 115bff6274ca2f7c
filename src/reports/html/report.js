"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const byId = (id) => document.getElementById(id);
  const conversation = byId("conversation");
  document.querySelector("#bar .tools").hidden = false;

  // Opens everything around an element.
  const reveal = (element) => {
    for (let at = element; at; at = at.parentElement) {
      if (at.tagName === "DETAILS") at.open = true;
      if (at.hidden && at.classList.contains("filtered")) at.hidden = false;
    }
  };
  const show = (element) => {
    reveal(element);
    element.scrollIntoView({ block: "start" });
  };

  // Links to a turn or a call that is inside a closed call.
  const followHash = () => {
    const target = location.hash.length > 1 && byId(decodeURIComponent(location.hash.slice(1)));
    if (target) show(target);
  };
  addEventListener("hashchange", followHash);
  if (location.hash) followHash();

  // Errors, one after the other.
  const errors = all("[data-failed]", conversation);
  const shownErrors = () => errors.filter((element) => !element.closest("[hidden]"));
  const errorCount = byId("errors");
  let currentError = null;
  const countErrors = () => {
    const shown = shownErrors();
    const at = shown.indexOf(currentError);
    errorCount.textContent = shown.length ? `${at < 0 ? "" : `${at + 1} of `}${shown.length}` : "no errors";
    byId("next").disabled = byId("previous").disabled = !shown.length;
  };
  const goToError = (step) => {
    const shown = shownErrors();
    if (!shown.length) return;
    const at = shown.indexOf(currentError);
    const next = at < 0 ? (step > 0 ? 0 : shown.length - 1) : (at + step + shown.length) % shown.length;
    if (currentError) currentError.classList.remove("current");
    currentError = shown[next];
    currentError.classList.add("current");
    show(currentError);
    const focus = currentError.querySelector("summary, a");
    if (focus) focus.focus({ preventScroll: true });
    countErrors();
  };
  byId("next").addEventListener("click", () => goToError(1));
  byId("previous").addEventListener("click", () => goToError(-1));

  // Filters.
  const onlyErrors = byId("errors-only");
  const agentFilter = byId("by-agent");
  const toolFilter = byId("by-tool");
  const units = all(".step, .call[id]", conversation);
  const names = (key) => [...new Set(units.map((unit) => unit.dataset[key]).filter(Boolean))];
  names("agent").forEach((name) => agentFilter.append(new Option(name, name)));
  names("tool").sort().forEach((name) => toolFilter.append(new Option(name, name)));
  const filter = () => {
    const isActive = onlyErrors.checked || agentFilter.value || toolFilter.value;
    const kept = new Set();
    const fits = (unit) =>
      (!onlyErrors.checked || "failed" in unit.dataset) &&
      (!agentFilter.value || unit.dataset.agent === agentFilter.value) &&
      (!toolFilter.value || unit.dataset.tool === toolFilter.value);
    let count = 0;
    for (const unit of units) {
      if (!isActive || !fits(unit)) continue;
      count += 1;
      for (let at = unit; at && at !== conversation && !kept.has(at); at = at.parentElement) kept.add(at);
    }
    for (const unit of units) {
      unit.hidden = Boolean(isActive) && !kept.has(unit);
      unit.classList.toggle("filtered", unit.hidden);
    }
    if (isActive) for (const at of kept) if (at.tagName === "DETAILS" && at.querySelector(".step")) at.open = true;
    byId("nothing").hidden = !isActive || count > 0;
    countErrors();
  };
  for (const control of [onlyErrors, agentFilter, toolFilter]) control.addEventListener("change", filter);
  filter();

  // Search over all texts.
  const search = byId("search");
  const matchCount = byId("matches");
  const MOST = 2000;
  let matches = [];
  let match = -1;
  const mark = (name, ranges) => {
    if (!window.Highlight || !CSS.highlights) return;
    if (ranges.length) CSS.highlights.set(name, new Highlight(...ranges));
    else CSS.highlights.delete(name);
  };
  const goToMatch = (step) => {
    if (!matches.length) return;
    match = (match + step + matches.length) % matches.length;
    const range = matches[match];
    reveal(range.startContainer.parentElement);
    mark("found-current", [range]);
    range.startContainer.parentElement.scrollIntoView({ block: "center" });
    const box = range.getBoundingClientRect();
    if (box.height) scrollBy(0, box.top - innerHeight / 2);
    matchCount.textContent = `${match + 1} of ${matches.length}${matches.length === MOST ? "+" : ""}`;
  };
  const find = () => {
    const words = search.value.toLowerCase();
    matches = [];
    match = -1;
    mark("found-current", []);
    if (words.length > 1) {
      const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
      while (matches.length < MOST && walker.nextNode()) {
        const text = walker.currentNode.data.toLowerCase();
        for (let at = text.indexOf(words); at >= 0 && matches.length < MOST; at = text.indexOf(words, at + words.length)) {
          const end = at + words.length;
          if (end > walker.currentNode.length || walker.currentNode.parentElement.closest("title")) break;
          const range = new Range();
          range.setStart(walker.currentNode, at);
          range.setEnd(walker.currentNode, end);
          matches.push(range);
        }
      }
    }
    matches.forEach((range) => reveal(range.startContainer.parentElement));
    mark("found", matches);
    matchCount.textContent = words.length < 2 ? "" : matches.length ? `${matches.length}${matches.length === MOST ? "+" : ""} found` : "none found";
  };
  let waiting = 0;
  let found = "";
  const findNow = () => {
    clearTimeout(waiting);
    if (found === search.value) return;
    found = search.value;
    find();
  };
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(findNow, 200);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      findNow();
      goToMatch(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      search.value = "";
      findNow();
      search.blur();
    }
  });

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input[type=search], select")) return;
    if (event.key === "n") goToError(1);
    else if (event.key === "p") goToError(-1);
    else if (event.key === "/") search.focus();
    else return;
    event.preventDefault();
  });

  // The timeline: names at once, and zoom.
  const timeline = document.querySelector(".timeline svg");
  const hover = byId("hover");
  const hint = hover.textContent + "Point at a bar to see what it is; a click goes there.";
  hover.textContent = hint;
  timeline.addEventListener("mouseover", (event) => {
    const link = event.target.closest("a");
    const title = link && link.querySelector("title");
    hover.textContent = title ? title.textContent : hint;
  });
  timeline.addEventListener("mouseleave", () => { hover.textContent = hint; });
  let zoom = 1;
  const setZoom = (to) => {
    const box = timeline.parentElement;
    const center = (box.scrollLeft + box.clientWidth / 2) / box.scrollWidth;
    zoom = Math.min(64, Math.max(1, to));
    timeline.setAttribute("width", `${zoom * 100}%`);
    box.scrollLeft = center * box.scrollWidth - box.clientWidth / 2;
  };
  document.querySelector(".zoom").hidden = false;
  byId("zoom-in").addEventListener("click", () => setZoom(zoom * 2));
  byId("zoom-out").addEventListener("click", () => setZoom(zoom / 2));
})();
