"use strict";
// Replaces what the server has told, and keeps what the reader did: what is open, typed, and scrolled to.
(() => {
  for (const e of document.querySelectorAll(".still")) e.remove();
  for (const e of document.querySelectorAll("form[hidden]")) e.hidden = false;
  const section = e => { const s = e.closest("section"); return s ? s.getAttribute("aria-labelledby") : "" };
  const name = e => section(e) + " " + (e.matches("summary") ? e.parentElement.dataset.key : e.getAttribute("href") || e.dataset.key);
  const every = 1000 * document.documentElement.dataset.refresh;
  const refresh = async () => {
    try {
      if (getSelection().type !== "Range") {
        const answer = await fetch(location.href, {cache: "no-store"});
        const next = new DOMParser().parseFromString(await answer.text(), "text/html");
        const main = next.querySelector("main"), old = document.querySelector("main");
        if (main) {
          const open = new Set([...old.querySelectorAll("details[open]")].map(name));
          for (const e of main.querySelectorAll("details")) e.open = open.has(name(e));
          const active = old.contains(document.activeElement) && document.activeElement !== old ? name(document.activeElement) : null;
          const x = scrollX, y = scrollY;
          old.replaceWith(document.adoptNode(main));
          document.querySelector("header p").replaceWith(document.adoptNode(next.querySelector("header p")));
          document.title = next.title;
          document.body.className = next.body.className;
          if (active) [...main.querySelectorAll("a, summary")].find(e => name(e) === active)?.focus({preventScroll: true});
          scrollTo(x, y);
        }
      }
    } catch {
      document.body.className = "stale";
      document.title = "No answer from this page's server";
    }
    setTimeout(refresh, every);
  };
  setTimeout(refresh, every);
})();
