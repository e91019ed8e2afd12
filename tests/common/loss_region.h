// The loss of a language model and its gradient over the logits as one fused region: what rows as wide as a vocabulary are for.
#pragma once
#include <fmt/format.h>

#include <string>

namespace ingot::tests {

/// Cross entropy of [rows, width] logits, rows of target -1 left out, with a pull on the first largest logit. A graph whose
/// inputs are x (logits) and t (targets); its region yields the gradient, which may stand on x, and the sum of the losses (of one
/// row: f32[1, 1]).
inline std::string loss_region(int64_t rows, int64_t width, const std::string& dtype, const std::string& targets) {
  const std::string x = fmt::format("{}[{}, {}]", dtype, rows, width), f = fmt::format("f32[{}, {}]", rows, width);
  const std::string row = fmt::format("f32[{}, 1]", rows), id = fmt::format("i32[{}, 1]", rows);
  const std::string hit = fmt::format("bool[{}, {}]", rows, width), count = fmt::format("i32[{}]", width);
  std::string body = R"(
  %f = cast(%a) {dtype: f32}: FULL
  %m = max(%f) {axes: [1], keep: true}: ROW
  %s = sub(%f, %m): FULL
  %e = exp(%s): FULL
  %z = sum(%e) {axes: [1], keep: true}: ROW
  %g = log(%z): ROW
  %i = iota() {shape: [WIDTH], axis: 0, dtype: i32}: COUNT
  %h = eq(%i, %b): HIT
  %zero = constant() {value: 0.0, dtype: f32}: f32[]
  %w = select(%h, %s, %zero): FULL
  %at = sum(%w) {axes: [1], keep: true}: ROW
  %l = sub(%g, %at): ROW
  %none = constant() {value: -1.0, dtype: i32}: i32[]
  %ok = ne(%b, %none): bool[ROWS, 1]
  %kept = select(%ok, %l, %zero): ROW
  %flat = reshape(%kept) {shape: [ROWS]}: f32[ROWS]
  %total = sum(%flat) {axes: [0], keep: false}: f32[]
  %lse = add(%m, %g): ROW
  %q = sub(%f, %lse): FULL
  %p = exp(%q): FULL
  %n = cast(%h) {dtype: f32}: FULL
  %d = sub(%p, %n): FULL
  %top = eq(%f, %m): HIT
  %past = constant() {value: WIDTH.0, dtype: i32}: i32[]
  %c = select(%top, %i, %past): i32[ROWS, WIDTH]
  %first = min(%c) {axes: [1], keep: true}: i32[ROWS, 1]
  %is = eq(%i, %first): HIT
  %k = constant() {value: 0.01, dtype: f32}: f32[]
  %pull = mul(%m, %k): ROW
  %r = select(%is, %pull, %zero): FULL
  %u = add(%d, %r): FULL
  %v = select(%ok, %u, %zero): FULL
  %y = cast(%v) {dtype: DTYPE}: LOGITS
  yield %y, %total
)";
  const auto put = [&](const std::string& word, const std::string& by) {
    for (size_t at = 0; (at = body.find(word, at)) != std::string::npos; at += by.size()) body.replace(at, word.size(), by);
  };
  // A row by itself is no sum over rows.
  const std::string sum = rows > 1 ? "%total" : "%kept", loss = rows > 1 ? "f32[]" : row;
  put("  yield %y, %total", "  yield %y, " + sum);
  if (rows == 1) body.erase(body.find("  %flat"), body.find("  %lse") - body.find("  %flat"));
  put("FULL", f), put("LOGITS", x), put("ROWS", std::to_string(rows)), put("ROW", row), put("COUNT", count), put("HIT", hit);
  put("WIDTH", std::to_string(width)), put("DTYPE", dtype);
  return "range t " + targets + "\ngraph @main at fused {\ninput %x: " + x + "\ninput %t: " + id +
         "\n%y, %o = fuse(%x, %t) {kind: \"row\", rows: " + std::to_string(rows) + "} (%a: " + x + ", %b: " + id + ") {" + body +
         "}: " + x + ", " + loss + "\n}";
}

}  // namespace ingot::tests
