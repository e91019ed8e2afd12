// Attributes: compile-time arguments of an op.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/base/type.h"

namespace ingot::ir {

enum class AttrKind : uint8_t { boolean, integer, real, text, dtype, integers, reals };

/// The alternative's index equals AttrKind. Text forms: true, 3, 1e-05, "abc", bf16, [1, 2], [1.0, 2.0].
using Attr = std::variant<bool, int64_t, double, std::string, DType, std::vector<int64_t>, std::vector<double>>;

inline AttrKind attr_kind(const Attr& attr) { return static_cast<AttrKind>(attr.index()); }
std::string attr_text(const Attr& attr);
/// "an integer", "a list of integers", ... for messages.
std::string_view attr_kind_text(AttrKind kind);

/// Few named attributes, kept sorted by name so that equality, hashing and printing are canonical. Copies share one list until
/// one of them is changed: every pass copies almost every op.
class Attrs {
  using List = std::vector<std::pair<std::string, Attr>>;

 public:
  void set(std::string_view name, Attr value);
  const Attr* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Typed reads: InternalError when absent or of another kind (the verifier has checked both before).
  bool boolean(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  DType dtype(std::string_view name) const;
  const std::vector<int64_t>& integers(std::string_view name) const;
  const std::vector<double>& reals(std::string_view name) const;

  List::const_iterator begin() const { return list().begin(); }
  List::const_iterator end() const { return list().end(); }
  bool empty() const { return list().empty(); }
  /// Bit-exact (NaN equals NaN, -0.0 differs from 0.0).
  bool operator==(const Attrs& other) const;

 private:
  const List& list() const;

  std::shared_ptr<const List> list_;  ///< null when there are none
};

}  // namespace ingot::ir
