// Notes the control that has the focus now; once the focus has gone round, tells what was wrong.
() => {
  const isShown = (each) => each.checkVisibility();
  const controls = [
    ...document.querySelectorAll(
      "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']",
    ),
  ].filter((each) => isShown(each) && !each.disabled);
  const walk = (window.walk ??= { reached: new Set(), problems: [] });
  const one = document.activeElement;
  const name = (each) => each.outerHTML.slice(0, 110);
  const say = (problem, each = one) => walk.problems.push(`${problem}: ${name(each)}`);

  const isAway = !one || one === document.body;
  // A page can begin with the focus on a problem, and its head comes last.
  if (one === controls[0] || isAway) walk.last = walk.place = null;
  if (isAway && !walk.hasLeft) {
    walk.hasLeft = true;
    return { ended: false, folded: false };
  }
  if (isAway || walk.reached.has(one)) {
    // Tab reaches one radio button of a group, arrow keys reach the others.
    const group = (each) => each.type === "radio" && each.name;
    const groups = new Set([...walk.reached].map(group).filter(Boolean));
    for (const each of controls) {
      if (!walk.reached.has(each) && !groups.has(group(each))) say("not reached", each);
      const isNative = /^(A|BUTTON|INPUT|SELECT|TEXTAREA|SUMMARY)$/.test(each.tagName);
      if (!isNative && !/^(region|application|listbox)$/.test(each.getAttribute("role"))) {
        say("not operated by keys", each);
      }
    }
    for (const each of document.querySelectorAll("main *")) {
      const isPointed = isShown(each) && getComputedStyle(each).cursor === "pointer";
      // Keys of the trace and of the list of blinks do what a click on the overview does.
      const byKeys = "a, button, label, summary, select, input, [role=listbox], #overview";
      if (isPointed && !each.closest(byKeys)) {
        say("for a pointer alone", each);
      }
    }
    return { ended: true, count: walk.reached.size, problems: walk.problems };
  }

  const hasRing = (each) => {
    const style = getComputedStyle(each);
    return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
  };
  if (!hasRing(one) && !hasRing(one.closest("label") ?? one)) say("no ring of focus");
  const box = one.getClientRects()[0];
  const page = document.documentElement;
  const [left, right] = [Math.max(0, box.left), Math.min(page.clientWidth, box.right)];
  const [top, bottom] = [Math.max(0, box.top), Math.min(page.clientHeight, box.bottom)];
  const isInside = left < right && top < bottom;
  const hit = isInside && document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
  if (!hit) say("focused outside the window");
  else if (!one.contains(hit) && !hit.contains(one)) say(`covered by ${name(hit)}`);
  const place = { top: box.top + scrollY, bottom: box.bottom + scrollY, left: box.left };
  const isAfter = !walk.last || walk.last.compareDocumentPosition(one) & 4;
  if (!isAfter) say("before its predecessor");
  // The bar wraps where it is narrow: jobs and settings stay on top of the entries.
  const isBar = one.closest("header.bar");
  const jumps = walk.place && place.bottom < walk.place.top && place.left < walk.place.left && !isBar;
  if (jumps) say("jumps up and to the left");
  walk.last = one;
  walk.place = place;
  walk.reached.add(one);
  return { ended: false, folded: one.tagName === "SUMMARY" && !one.parentElement.open };
};
