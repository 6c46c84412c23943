// SPDX-License-Identifier: Apache-2.0
// Theme, charts, figures' ids, copy buttons. Everything is on the page already; nothing is fetched.
(function () {
  "use strict";
  var root = document.documentElement;
  var prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  var chosen = null;
  try { chosen = localStorage.getItem("pdlab-theme"); } catch (ignored) { /* a page of file:// may have no storage */ }

  function theme() { return chosen || (prefersDark.matches ? "dark" : "light"); }

  // --- charts ---------------------------------------------------------------------------------------------------

  var source = document.getElementById("charts-data");
  var charts = source && window.Plotly ? JSON.parse(source.textContent) : {};
  var config = { displayModeBar: false, displaylogo: false, staticPlot: false, responsive: false };
  var PRINT_WIDTH = 326;

  function colour(style, token) {
    var soft = /-soft$/.test(token);
    var value = style.getPropertyValue("--" + token.replace(/^@/, "").replace(/-soft$/, "")).trim();
    return soft && /^#[0-9a-f]{6}$/i.test(value) ? value + "40" : value;
  }

  function painted(value, style) {
    if (typeof value === "string") { return /^@[a-z]+[0-9]?(-soft)?$/.test(value) ? colour(style, value) : value; }
    if (Array.isArray(value)) { return value.map(function (item) { return painted(item, style); }); }
    if (value && typeof value === "object") {
      var made = {};
      Object.keys(value).forEach(function (key) { made[key] = painted(value[key], style); });
      return made;
    }
    return value;
  }

  function draw(width) {
    var style = getComputedStyle(root);
    Object.keys(charts).forEach(function (id) {
      var place = document.getElementById(id);
      if (!place) { return; }
      var layout = painted(charts[id].layout, style);
      layout.height = Number(place.dataset.height);
      layout.width = width || place.clientWidth;
      layout.autosize = false;
      Plotly.react(place, painted(charts[id].data, style), layout, config);
    });
  }

  function show() {
    root.dataset.theme = theme();
    var button = document.getElementById("theme");
    if (button) { button.textContent = theme() === "dark" ? "Light" : "Dark"; }
    draw();
  }

  show();
  prefersDark.addEventListener("change", show);
  var switcher = document.getElementById("theme");
  if (switcher) {
    switcher.addEventListener("click", function () {
      chosen = theme() === "dark" ? "light" : "dark";
      try { localStorage.setItem("pdlab-theme", chosen); } catch (ignored) { /* it holds for this view */ }
      show();
    });
  }
  if (window.ResizeObserver) {
    var sizes = new ResizeObserver(function (entries) {
      entries.forEach(function (entry) {
        var plot = entry.target, width = Math.floor(entry.contentRect.width);
        if (width > 0 && plot.classList.contains("js-plotly-plot") && plot.layout && plot.layout.width !== width) {
          Plotly.relayout(plot, { width: width });
        }
      });
    });
    document.querySelectorAll(".plot").forEach(function (plot) { sizes.observe(plot); });
  }
  // Paper is white and has its own width, and what is folded away on a screen cannot be opened there.
  var folded = [];
  window.addEventListener("beforeprint", function () {
    root.dataset.theme = "light";
    folded = Array.prototype.filter.call(document.querySelectorAll("details:not([open])"), function (item) { item.open = true; return true; });
    draw(PRINT_WIDTH);
  });
  window.addEventListener("afterprint", function () {
    folded.forEach(function (item) { item.open = false; });
    show();
  });

  // --- where a figure comes from ----------------------------------------------------------------------------------

  var bar = document.getElementById("source");
  document.addEventListener("click", function (event) {
    var figure = event.target.closest ? event.target.closest("[data-figure]") : null;
    if (!bar || !figure) { return; }
    bar.querySelector("code").textContent = bar.dataset.command + figure.dataset.figure;
    bar.hidden = false;
  });
  if (bar) { bar.querySelector("button").addEventListener("click", function () { bar.hidden = true; }); }

  // --- copy buttons -----------------------------------------------------------------------------------------------

  document.querySelectorAll("button.copy").forEach(function (button) {
    button.addEventListener("click", function () {
      var code = button.parentElement.querySelector("code"), range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      function said(word) { button.textContent = word; setTimeout(function () { button.textContent = "Copy"; }, 1500); }
      if (navigator.clipboard) {
        navigator.clipboard.writeText(code.textContent).then(function () { said("Copied"); }, function () { said("Selected"); });
      } else { said(document.execCommand("copy") ? "Copied" : "Selected"); }
    });
  });
})();
