/* What a search ranks first: the public name that was typed, then names that contain it, then pages of the guide. */
const Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) => {
    const query = (new URLSearchParams(window.location.search).get("q") || "").trim();
    const name = title.split(".").pop();
    if (/^shiftsvd\.[A-Za-z]+$/.test(title) && name === query) return score + 300;
    if (/^shiftsvd\.[A-Za-z]+$/.test(title) && name.toLowerCase() === query.toLowerCase()) return score + 200;
    if (name.toLowerCase() === query.toLowerCase() && docname.startsWith("api/")) return score + 100;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
