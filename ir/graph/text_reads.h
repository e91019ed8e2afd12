// Reading the small parts of the text form: types, attributes, locations. Used by the parsers of graphs and modules only.
#pragma once
#include <optional>

#include "ir/base/attr.h"
#include "ir/base/lexer.h"
#include "ir/base/type.h"
#include "ir/base/variable.h"

namespace ingot::ir {

struct OpDef;

/// bf16[8, 128, 768]
Type read_type(Lexer& lexer);
/// A value of an attribute. Integers are taken where reals are wanted.
Attr read_attr(Lexer& lexer, std::optional<AttrKind> wanted = std::nullopt);
/// {name: value, ...} or nothing. Names and kinds must be those of `def`.
Attrs read_attrs(Lexer& lexer, const OpDef& def);
/// loc("file":line:col from "origin"), loc(unknown), or nothing: then `absent`.
Loc read_loc(Lexer& lexer, const Loc& absent);
/// tokens 0..100 or [-100] loc(...): what stands behind the word `range`.
InputRange read_range(Lexer& lexer, const Token& keyword);

}  // namespace ingot::ir
