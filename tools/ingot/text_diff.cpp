#include "tools/ingot/text_diff.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace ingot::tools {
namespace {

using Lines = std::vector<std::string_view>;

constexpr int kMostEdits = 4000;  ///< bounds time and the memory of the trace

Lines split(const std::string& text) {
  Lines lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

struct Line {
  char mark;
  std::string_view text;
};

/// The shortest edit script (Myers), walked forward with the furthest reach per diagonal, then back along the trace.
std::vector<Line> shortest_script(const Lines& a, const Lines& b) {
  const int n = static_cast<int>(a.size()), m = static_cast<int>(b.size());
  const int limit = std::min(n + m, kMostEdits);
  const size_t middle = static_cast<size_t>(limit) + 1;
  std::vector<int> reach(2 * middle + 1, 0);
  std::vector<std::vector<int>> trace;
  auto at = [&](std::vector<int>& list, int k) -> int& { return list[middle + static_cast<size_t>(k)]; };
  int edits = 0;
  for (bool found = false; !found && edits <= limit; ++edits) {
    trace.emplace_back(reach.begin() + static_cast<std::ptrdiff_t>(middle) - edits - 1,
                       reach.begin() + static_cast<std::ptrdiff_t>(middle) + edits + 2);
    for (int k = -edits; k <= edits && !found; k += 2) {
      int x = k == -edits || (k != edits && at(reach, k - 1) < at(reach, k + 1)) ? at(reach, k + 1) : at(reach, k - 1) + 1;
      while (x < n && x - k < m && a[static_cast<size_t>(x)] == b[static_cast<size_t>(x - k)]) ++x;
      at(reach, k) = x;
      found = x >= n && x - k >= m;
    }
    if (found) break;
  }
  std::vector<Line> lines;
  if (edits > limit) {
    for (std::string_view line : a) lines.push_back({'-', line});
    for (std::string_view line : b) lines.push_back({'+', line});
    return lines;
  }
  int x = n, y = m;
  for (int d = edits; d >= 0; --d) {
    const std::vector<int>& before = trace[static_cast<size_t>(d)];
    auto past = [&](int k) { return before[static_cast<size_t>(k + d + 1)]; };
    const int k = x - y;
    const int from = k == -d || (k != d && past(k - 1) < past(k + 1)) ? k + 1 : k - 1;
    const int px = d == 0 ? 0 : past(from), py = d == 0 ? 0 : px - from;
    for (; x > px && y > py; --x, --y) lines.push_back({' ', a[static_cast<size_t>(x - 1)]});
    if (d == 0) break;
    lines.push_back(x == px ? Line{'+', b[static_cast<size_t>(y - 1)]} : Line{'-', a[static_cast<size_t>(x - 1)]});
    x = px, y = py;
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace

std::string text_diff(const std::string& before, const std::string& after, size_t context) {
  if (before == after) return "";
  Lines a = split(before), b = split(after);
  // Equal ends need no search.
  size_t head = 0, tail = 0;
  while (head < a.size() && head < b.size() && a[head] == b[head]) ++head;
  while (tail + head < a.size() && tail + head < b.size() && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  std::vector<Line> lines;
  for (size_t i = 0; i < head; ++i) lines.push_back({' ', a[i]});
  const auto middle = [&](const Lines& l) {
    return Lines(l.begin() + static_cast<std::ptrdiff_t>(head), l.end() - static_cast<std::ptrdiff_t>(tail));
  };
  for (const Line& line : shortest_script(middle(a), middle(b))) lines.push_back(line);
  for (size_t i = a.size() - tail; i < a.size(); ++i) lines.push_back({' ', a[i]});

  std::vector<bool> shown(lines.size(), false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].mark == ' ') continue;
    for (size_t k = i < context ? 0 : i - context; k <= std::min(i + context, lines.size() - 1); ++k) shown[k] = true;
  }
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (shown[i]) {
      text += lines[i].mark;
      text.append(lines[i].text).append("\n");
    } else if (i == 0 || shown[i - 1]) {
      text += "...\n";
    }
  }
  return text;
}

}  // namespace ingot::tools
