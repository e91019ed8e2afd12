// The row space of fused regions: composed views, classes, sweeps, leads, refusals.
#include "passes/region.h"

#include <gtest/gtest.h>

#include "ir/graph/text.h"
#include "passes/min_cut.h"

namespace ingot::passes {
namespace {

using ir::Shape;
using ir::View;

// Where element `index` (row-major over dims) of a map lies; -1 when the shift leaves the sequence.
int64_t place(const IndexMap& map, int64_t index) {
  int64_t at = map.offset, rest = index;
  for (size_t k = map.dims.size(); k-- > 0;) {
    at += rest % map.dims[k] * map.strides[k];
    rest /= map.dims[k];
  }
  return at;
}

int64_t place(const View& view, int64_t index) {
  int64_t at = view.offset;
  for (size_t k = view.dims.size(); k-- > 0;) {
    at += index % view.dims[k] * view.strides[k];
    index /= view.dims[k];
  }
  return at;
}

// Composing must equal looking up twice.
void expect_composes(const Shape& from, const Shape& to, const View& view) {
  const IndexMap map = broadcast_map(from, to);
  const auto composed = compose(map, view);
  ASSERT_TRUE(composed.has_value());
  for (int64_t i = 0; i < ir::element_count(to); ++i) EXPECT_EQ(place(*composed, i), place(view, place(map, i))) << i;
}

TEST(IndexMap, BroadcastsFromTheRight) {
  const IndexMap map = broadcast_map({4, 1, 3}, {2, 4, 5, 3});
  EXPECT_EQ(map.strides, (std::vector<int64_t>{0, 3, 0, 1}));
}

TEST(IndexMap, ComposesReshapes) { expect_composes({2, 12}, {5, 2, 12}, {{2, 3, 4}, {12, 4, 1}, 0}); }
TEST(IndexMap, ComposesTransposes) { expect_composes({6, 4}, {6, 4}, {{6, 4}, {1, 6}, 0}); }
TEST(IndexMap, ComposesSlices) { expect_composes({3, 4}, {2, 3, 4}, {{3, 4}, {10, 1}, 5}); }
TEST(IndexMap, ComposesRepeats) { expect_composes({3, 8, 2}, {3, 8, 2}, {{3, 4, 2, 2}, {8, 2, 0, 1}, 0}); }
TEST(IndexMap, SplitsAnAxisThatCrossesDigits) { expect_composes({24}, {24}, {{2, 3, 4}, {100, 10, 1}, 7}); }

TEST(IndexMap, RefusesAnAxisThatStraddlesDigits) {
  // A slice of 5 out of rows of 4, then cut as 2 x 3: the pieces do not nest.
  const IndexMap map{{2, 3}, {3, 1}, 0, 0, 0, 0};
  EXPECT_FALSE(compose(map, {{3, 4}, {8, 1}, 0}).has_value());
}

RegionPlan plan(const std::string& text, int64_t rows = 0) {
  const ir::Graph body = ir::parse_graph(text);
  std::string why;
  auto made = plan_region(body, rows, &why);
  EXPECT_TRUE(made.has_value()) << why;
  return made ? *made : RegionPlan{};
}

std::string refusal(const std::string& text, int64_t rows = 0) {
  std::string why = "not refused";
  plan_region(ir::parse_graph(text), rows, &why);
  return why;
}

constexpr const char* kNorm = R"(graph @n at core {
  input %x: f32[2, 3, 8]
  input %w: f32[8]
  %s = sum(%x) {axes: [2], keep: true}: f32[2, 3, 1]
  %n = constant() {value: 0.125, dtype: f32}: f32[]
  %m = mul(%s, %n): f32[2, 3, 1]
  %c = sub(%x, %m): f32[2, 3, 8]
  %q = mul(%c, %w): f32[2, 3, 8]
  output y = %q
})";

// How an input is stored says nothing about the rows: what computes does.
TEST(RegionRows, AReshapedInputDecidesNone) {
  const RegionPlan p = plan(R"(graph @r at fused {
  input %x: f32[8192]
  %m = reshape(%x) {shape: [4, 2048]}: f32[4, 2048]
  %q = square(%m): f32[4, 2048]
  %s = sum(%q) {axes: [1], keep: false}: f32[4]
  output s = %s
})");
  EXPECT_EQ(p.rows, 4);
  EXPECT_EQ(p.columns(), 2048);
}

TEST(Region, ReductionsStartANewSweep) {
  const RegionPlan p = plan(kNorm, 6);
  EXPECT_EQ(p.rows, 6);
  EXPECT_EQ(p.columns(), 8);
  ASSERT_EQ(p.steps.size(), 4u);
  EXPECT_EQ(p.steps[0].kind, StepKind::reduce_columns);
  EXPECT_EQ(p.steps[0].result, RowClass::row);
  EXPECT_EQ(p.steps[0].sweep, 0);
  EXPECT_EQ(p.steps[1].sweep, 1);
  EXPECT_EQ(p.steps[3].sweep, 1);
  EXPECT_EQ(p.steps[3].reads[1].row, 0);
  EXPECT_EQ(p.steps[3].reads[1].unit, 1);
}

TEST(Region, AComputedValueMayBeReadOneRowBack) {
  const RegionPlan p = plan(R"(graph @s at core {
  input %x: f32[2, 3, 8]
  %a = exp(%x): f32[2, 3, 8]
  %p = shift_rows(%a) {by: 1}: f32[2, 3, 8]
  %d = sub(%p, %a): f32[2, 3, 8]
  output y = %d
})",
                            6);
  ASSERT_EQ(p.steps.size(), 2u);
  EXPECT_EQ(p.period, 3);
  EXPECT_EQ(p.steps[0].depth, 2);
  EXPECT_EQ(p.steps[0].low, -1);
  EXPECT_EQ(p.steps[0].lead, 0);
  EXPECT_EQ(p.steps[1].reads[0].shift, -1);
}

TEST(Region, AComputedValueReadOneRowAheadIsMadeAhead) {
  const RegionPlan p = plan(R"(graph @s at core {
  input %x: f32[2, 3, 8]
  %a = exp(%x): f32[2, 3, 8]
  %p = shift_rows(%a) {by: -1}: f32[2, 3, 8]
  %d = sub(%p, %a): f32[2, 3, 8]
  output y = %d
})",
                            6);
  EXPECT_EQ(p.steps[0].lead, 1);
  EXPECT_EQ(p.steps[0].depth, 2);
  EXPECT_EQ(p.steps[1].lead, 0);
  EXPECT_EQ(p.steps[1].sweep, 1);
}

TEST(Region, HeadsComeFromReductionsOverTheirElements) {
  const RegionPlan p = plan(R"(graph @h at core {
  input %x: f32[2, 3, 8]
  input %k: f32[2, 4]
  %h = reshape(%x) {shape: [2, 3, 2, 4]}: f32[2, 3, 2, 4]
  %m = mul(%h, %k): f32[2, 3, 2, 4]
  %s = sum(%m) {axes: [3], keep: true}: f32[2, 3, 2, 1]
  %d = mul(%m, %s): f32[2, 3, 2, 4]
  output y = %d
})",
                            6);
  EXPECT_EQ(p.groups, 2);
  EXPECT_EQ(p.n, 4);
  EXPECT_EQ(p.classes[p.outputs[0]], RowClass::full);
  EXPECT_EQ(p.steps[1].result, RowClass::head);
}

TEST(Region, ColumnSumsEndTheRegion) {
  const char* text = R"(graph @c at core {
  input %x: f32[6, 8]
  %a = exp(%x): f32[6, 8]
  %s = sum(%a) {axes: [0], keep: false}: f32[8]
  output y = %s
})";
  const RegionPlan p = plan(text, 6);
  EXPECT_EQ(p.steps[1].kind, StepKind::column_sum);
  EXPECT_EQ(p.steps[1].result, RowClass::column);
  EXPECT_NE(refusal(R"(graph @c at core {
  input %x: f32[6, 8]
  %s = sum(%x) {axes: [0], keep: false}: f32[8]
  %d = mul(%x, %s): f32[6, 8]
  output y = %d
})",
                    6)
                .find("used inside the region"),
            std::string::npos);
}

TEST(Region, OneRowHasNoColumns) {
  const RegionPlan p = plan(R"(graph @one at core {
  input %x: f32[1, 1, 8]
  input %w: f32[8]
  %a = mul(%x, %w): f32[1, 1, 8]
  output y = %a
})",
                            1);
  EXPECT_EQ(p.steps[0].result, RowClass::full);
}

TEST(Region, RefusesWhatDoesNotShareTheRows) {
  EXPECT_NE(refusal(R"(graph @r at core {
  input %x: f32[2, 3, 8]
  %t = transpose(%x) {perm: [1, 0, 2]}: f32[3, 2, 8]
  %e = exp(%t): f32[3, 2, 8]
  output y = %e
})",
                    6)
                .find("order of rows"),
            std::string::npos);
  EXPECT_NE(refusal(R"(graph @r at core {
  input %x: f32[2, 3, 8]
  %e = exp(%x): f32[2, 3, 8]
  %t = slice(%e) {starts: [0, 0, 4], sizes: [2, 3, 4]}: f32[2, 3, 4]
  %f = exp(%t): f32[2, 3, 4]
  output y = %f
})",
                    6)
                .find("another order"),
            std::string::npos);
}

// What a narrow copy of some parameters is: rows that come first, stored and read by nothing else.
TEST(Region, TheFirstRowsMayBeStoredByThemselves) {
  const std::string head = R"(graph @f at core {
  input %x: f32[6, 8]
  %e = exp(%x): f32[6, 8]
  %s = slice(%e) {starts: [0, 0], sizes: [4, 8]}: f32[4, 8]
  %c = cast(%s) {dtype: bf16}: bf16[4, 8]
)";
  const RegionPlan p = plan(head + "  output e = %e\n  output c = %c\n}", 6);
  ASSERT_EQ(p.steps.size(), 2u);
  EXPECT_EQ(p.steps[0].first_rows, 0);
  EXPECT_EQ(p.steps[1].first_rows, 4);
  EXPECT_EQ(p.steps[1].result, RowClass::full);
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(
      contains(refusal(head + "  %d = log(%c): bf16[4, 8]\n  output e = %e\n  output d = %d\n}", 6), "inside the region"));
  EXPECT_TRUE(contains(refusal(R"(graph @f at core {
  input %x: f32[6, 8]
  input %y: f32[4, 8]
  %e = exp(%x): f32[6, 8]
  %c = neg(%y): f32[4, 8]
  output e = %e
  output c = %c
})",
                               6),
                       "an input has fewer rows"));
}

TEST(Region, NumbersOfAllRowsAreStoredOnce) {
  const std::string numbers = "  input %s: f32[]\n  %n = sqrt(%s): f32[]\n", out = "  output n = %n\n";
  const RegionPlan p = plan(
      "graph @n at core {\n  input %x: f32[6, 8]\n" + numbers + "  %y = mul(%x, %n): f32[6, 8]\n  output y = %y\n" + out + "}",
      6);
  EXPECT_EQ(p.steps[0].result, RowClass::scalar);
  EXPECT_NE(refusal("graph @n at core {\n" + numbers + out + "}", 6).find("nothing in it has rows"), std::string::npos);
}

TEST(Region, GeneratedValuesRunAlongTheRows) {
  const RegionPlan p = plan(R"(graph @g at core {
  input %x: f32[6, 8]
  %i = iota() {shape: [6, 1], axis: 0, dtype: i32}: i32[6, 1]
  %f = cast(%i) {dtype: f32}: f32[6, 1]
  %y = mul(%x, %f): f32[6, 8]
  output y = %y
})",
                            6);
  EXPECT_EQ(p.steps[0].kind, StepKind::generate);
  EXPECT_EQ(p.steps[0].result, RowClass::row);
}

// "output<input ..." of all pairs.
std::string aliases(const std::string& text, int64_t rows) {
  const ir::Graph body = ir::parse_graph(text);
  std::string why;
  const auto made = plan_region(body, rows, &why);
  if (!made) return why;
  std::string out;
  for (const ir::Alias& alias : in_place(body, *made))
    out += std::to_string(alias.result) + "<" + std::to_string(alias.operand) + " ";
  return out;
}

TEST(InPlace, ARowSweptTwiceIsStoredInItsLastSweep) { EXPECT_EQ(aliases(kNorm, 6), "0<0 "); }

TEST(InPlace, NotBeforeTheLastSweepThatDependsOnTheInput) {
  // %e is stored in the first sweep; the second one reads %x, or makes %e of it again.
  for (const char* later : {"%x", "%e"}) {
    EXPECT_EQ(aliases(std::string(R"(graph @n at core {
  input %x: f32[6, 8]
  %e = exp(%x): f32[6, 8]
  %s = sum(%e) {axes: [1], keep: true}: f32[6, 1]
  %q = mul()") + later + R"(, %s): f32[6, 8]
  output e = %e
  output q = %q
})",
                      6),
              "1<0 ");
  }
}

TEST(InPlace, ALaterSweepThatReadsOnlyRowsDoesNotMatter) {
  EXPECT_EQ(aliases(R"(graph @n at core {
  input %x: f32[6, 8]
  input %y: f32[6, 8]
  %e = exp(%x): f32[6, 8]
  %s = sum(%e) {axes: [1], keep: true}: f32[6, 1]
  %q = mul(%y, %s): f32[6, 8]
  output e = %e
  output q = %q
})",
                    6),
            "0<0 1<0 1<1 ");
}

TEST(InPlace, ElementsMustMeetThemselves) {
  const char* parts[][2] = {
      {"f32[6, 16]", "slice(%x) {starts: [0, 8], sizes: [6, 8]}: f32[6, 8]"},  // wider rows
      {"f32[8]", "reshape(%x) {shape: [1, 8]}: f32[1, 8]"},                    // for all rows
      {"f32[6, 1]", "reshape(%x) {shape: [6, 1]}: f32[6, 1]"},                 // for all columns
      {"bf16[6, 8]", "cast(%x) {dtype: f32}: f32[6, 8]"},                      // of another size
  };
  for (const auto& [type, view] : parts) {
    EXPECT_EQ(aliases(std::string("graph @n at core {\ninput %x: ") + type + "\ninput %w: f32[6, 8]\n%v = " + view +
                          "\n%p = mul(%v, %w): f32[6, 8]\noutput p = %p\n}",
                      6),
              "0<1 ")
        << view;
  }
}

TEST(InPlace, NothingStandsWhereRowsReadTheirNeighbours) {
  EXPECT_EQ(aliases(R"(graph @n at core {
  input %x: f32[2, 3, 8]
  input %w: f32[2, 3, 8]
  %s = shift_rows(%x) {by: 1}: f32[2, 3, 8]
  %p = mul(%s, %w): f32[2, 3, 8]
  output p = %p
})",
                    6),
            "");
}

TEST(InPlace, SumsStandOnNothing) {
  EXPECT_EQ(aliases(R"(graph @n at core {
  input %x: f32[6, 8]
  input %w: f32[8]
  %e = mul(%x, %w): f32[6, 8]
  %s = sum(%e) {axes: [0], keep: false}: f32[8]
  output s = %s
})",
                    6),
            "");
}

TEST(MinCut, PrefersTheCutNearestTheSink) {
  // 0 -> 2 -> 3 -> 1 with two equal bottlenecks.
  MinCut cut(4);
  cut.edge(0, 2, 5);
  cut.edge(2, 3, MinCut::kInfinite);
  cut.edge(3, 1, 5);
  EXPECT_EQ(cut.run(0, 1), 5);
  const std::vector<bool> late = cut.sink_side(1);
  EXPECT_TRUE(late[1]);
  EXPECT_FALSE(late[3]);
  EXPECT_FALSE(late[2]);
}

TEST(MinCut, FindsTheSmallestOfSeveral) {
  MinCut cut(5);
  cut.edge(0, 2, 3);
  cut.edge(0, 3, 9);
  cut.edge(2, 4, MinCut::kInfinite);
  cut.edge(3, 4, 2);
  cut.edge(4, 1, 10);
  EXPECT_EQ(cut.run(0, 1), 5);
}

}  // namespace
}  // namespace ingot::passes
