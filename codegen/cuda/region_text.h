// What both ways of emitting a fused region share: who reads what, bodies of ops as text, the sums of several blocks.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "codegen/cuda/emit.h"
#include "codegen/cuda/layout.h"
#include "passes/region.h"

namespace ingot::codegen::cuda {

/// An input as some steps read it: element offset + row * r + head * g + unit * n of the operand.
struct Stream {
  enum class Kind : uint8_t {
    vector,    ///< neighbouring columns are neighbours in memory
    strided,   ///< they are not
    per_head,  ///< one element a head
    uniform    ///< one a row
  };
  int input = 0;
  int64_t offset = 0, row = 0, head = 0, unit = 0;
  Kind kind = Kind::uniform;
  ir::DType dtype = ir::DType::f32;
  // Rows that are held: the newest is row i + lead of iteration i, the oldest depth - 1 before it; the first one read lies `low`
  // behind the range's first.
  int lead = -100, least = 100, low = 100;
  bool early = false;  ///< read by what every row shares, before the first row

  int depth() const { return row == 0 ? 1 : lead - least + 1; }
  bool full() const { return kind == Kind::vector || kind == Kind::strided; }
  /// May it wait in shared memory (ring.h)? Copies go there by whole words.
  bool can_wait() const {
    if (kind == Kind::vector) return !early;
    return kind != Kind::strided && row != 0 && ir::dtype_bytes(dtype) == 4;
  }
};

class RegionText {
 public:
  RegionText(const Site& site, passes::RegionPlan plan);
  virtual ~RegionText() = default;
  RegionText(const RegionText&) = delete;
  RegionText& operator=(const RegionText&) = delete;

 protected:
  const passes::RegionStep& step_of(ir::ValueId value) const { return plan_.steps[static_cast<size_t>(plan_.step_of[value])]; }
  bool computed(ir::ValueId value) const { return plan_.step_of[value] >= 0; }
  bool is_literal(ir::ValueId value) const;
  std::string_view type_of(ir::ValueId value) const { return arithmetic_type(body_.type(value).dtype); }
  static bool same_loop(const passes::RegionStep& a, const passes::RegionStep& b) {
    return a.sweep == b.sweep && a.lead == b.lead;
  }
  /// Does a step of the region read the value?
  bool read_inside(ir::ValueId value) const;
  static bool per_row(passes::RowClass c);
  /// The class whose loop a step's reads stand in.
  static passes::RowClass reader_of(const passes::RegionStep& step);
  /// The same for every row, and no sum over them.
  static bool shared(const passes::RegionStep& step) {
    return step.kind != passes::StepKind::column_sum && !per_row(step.result);
  }
  bool sums_rows(size_t output) const { return step_of(plan_.outputs[output]).kind == passes::StepKind::column_sum; }
  bool stored(size_t output) const { return !site_.is_dead(static_cast<int>(output)); }
  /// Elements of a sum over the rows.
  int64_t sum_width(ir::ValueId value) const { return body_.type(value).elements(); }
  /// Rows of its partials.
  int64_t partial_rows(ir::ValueId value, const RowLayout& layout) const;

  /// The read as a stream; its index in streams_.
  int stream_of(const passes::RowAccess& read, passes::RowClass reader);
  void find_streams();
  RowDemand demand() const;
  bool heads_matter() const;
  /// Is a value of full rows needed outside the loop that makes it?
  bool outlives_loop(ir::ValueId value) const;

  /// "float x12;\n{ const float a0 = ..; x12 = BODY; }\n" of result k of an elementwise or generating step. A float stays f32
  /// unless the op is a rounding the author wrote or the value is stored: its readers here see what its readers elsewhere see.
  std::string value_text(const passes::RegionStep& step, size_t k,
                         const std::function<std::string(const passes::RowAccess&)>& read, const std::string& column) const;
  std::string literal_text(ir::ValueId value) const;
  static std::string combiner(const ir::Op& op);
  /// The type in which a reduction over columns combines.
  std::string accumulator(const ir::Op& op) const;
  /// The element of a stream that the column `c` + j or the head g has, without its row.
  std::string element_offset(const Stream& stream, const std::string& column) const;
  /// Largest number of elements, a power of two up to E, that divides every address of a vector stream.
  int64_t alignment(const Stream& stream, int at_once) const;

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    out_ += fmt::format(format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  /// " && .." where a value has fewer rows than the region.
  static std::string among_first_rows(const passes::RegionStep& step) {
    return step.first_rows > 0 ? fmt::format(" && r < {}", step.first_rows) : "";
  }
  /// Stores a scalar that every row shares: it is no sum, so one thread of the first block does.
  std::string store_scalar(ir::ValueId value) const;
  /// The column of an element of a generated value, counted over all rows; "0" of what every row shares.
  std::string element_number(passes::RowClass c, const std::string& row, const std::string& column) const;

  /// Parameters in0.., out0.. (sums: part0.. or out0..) and the sizes rows, each, period; workspaces go to `launches`.
  KernelBuilder open_kernel(const RowLayout& layout, bool partials, OpLaunches& launches) const;
  /// The sums over rows whose partials the kernel of `open_kernel` leaves in workspaces, a row a block or a range.
  std::vector<PendingSum> pending_sums(const RowLayout& layout) const;

  const Site& site_;
  const ir::Graph& body_;
  passes::RegionPlan plan_;
  std::map<ir::ValueId, int> inputs_;
  std::map<ir::ValueId, std::vector<int>> outputs_of_;  ///< those that are stored
  std::vector<Stream> streams_;
  std::string out_;
};

/// Values of a row held in registers.
OpLaunches emit_resident(const Site& site, const passes::RegionPlan& plan, const RowLayout& layout);
/// Rows too long for that: swept over again, values made anew.
OpLaunches emit_looped(const Site& site, const passes::RegionPlan& plan, const RowLayout& layout);
/// Neither: op by op.
OpLaunches emit_apart(const Site& site, const passes::RegionPlan& plan);

}  // namespace ingot::codegen::cuda
