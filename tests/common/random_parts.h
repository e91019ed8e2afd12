// The small parts random graphs are made of: names, places, attributes, types near another type, declarations.
#pragma once
#include <cstdint>
#include <string>

#include "ir/graph/graph.h"
#include "ir/graph/op_def.h"
#include "tests/common/random_graph.h"

namespace ingot::tests {

class RandomParts {
 public:
  RandomParts(Random& random, bool odd) : random_(random), odd_(odd) {}

  std::string name();  ///< never empty
  ir::Loc loc();       ///< unknown unless odd
  ir::Phase phase();
  /// Attributes of the right kinds, drawn with a view to the first operand's type.
  ir::Attrs attrs(const ir::OpDef& def, const ir::Type* about);
  /// A type an op might want beside a value of this one: the same, a suffix, an axis, transposed, of ids.
  ir::Type related(const ir::Type& type);
  /// Variables, ranges, optimizer, precision, info: everything of a module but its graphs.
  ir::Module declarations(bool variables);

 private:
  ir::Attr attr(ir::AttrKind kind, const ir::Type& about);
  double real();
  int64_t integer(const ir::Type& about);
  std::vector<int64_t> integers(const ir::Type& about);
  std::vector<int64_t> regrouped(const ir::Shape& shape);
  ir::Variable variable(std::string name);

  Random& random_;
  bool odd_;
};

}  // namespace ingot::tests
