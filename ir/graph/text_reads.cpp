#include "ir/graph/text_reads.h"

#include <fmt/format.h>

#include "ir/base/error.h"
#include "ir/graph/op_def.h"

namespace ingot::ir {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 40;  ///< as Builder: bytes and strides never overflow

std::vector<std::string> dtype_names() {
  std::vector<std::string> names;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::boolean}) {
    names.emplace_back(dtype_name(dtype));
  }
  return names;
}

template <class T, class Read>
std::vector<T> read_list(Lexer& lexer, Read read) {
  std::vector<T> list;
  lexer.expect("[", "to begin the list");
  while (!lexer.at("]")) {
    if (!list.empty()) lexer.expect(",", "or ']' in the list");
    list.push_back(read());
  }
  lexer.expect("]", "to end the list");
  return list;
}

std::vector<int64_t> read_integers(Lexer& lexer) {
  return read_list<int64_t>(lexer, [&] { return lexer.integer("an integer"); });
}
std::vector<double> read_reals(Lexer& lexer) {
  return read_list<double>(lexer, [&] { return lexer.real("a number"); });
}

bool is_integer_token(const Token& token) {
  return token.kind == TokenKind::number && token.text.find_first_of(".eEin") == std::string_view::npos;
}

}  // namespace

Type read_type(Lexer& lexer) {
  const Token token = lexer.peek();
  const std::string name = lexer.word("a type such as f32[8, 64]");
  const std::optional<DType> dtype = dtype_from_name(name);
  if (!dtype) lexer.fail_unknown(token, fmt::format("unknown dtype '{}'", name), dtype_names());
  Type type{*dtype, read_integers(lexer)};
  int64_t elements = 1;
  for (int64_t size : type.shape) {
    if (size < 1) lexer.fail(token, fmt::format("every axis must be at least 1 long, but the type is {}", type.text()));
    if (__builtin_mul_overflow(elements, size, &elements) || elements > kMostElements) {
      lexer.fail(token, fmt::format("{} is too large: more than 2^40 elements", type.text()));
    }
  }
  return type;
}

Attr read_attr(Lexer& lexer, std::optional<AttrKind> wanted) {
  if (lexer.at("true") || lexer.at("false")) return lexer.boolean("an attribute");
  if (lexer.at(TokenKind::text)) return lexer.quoted_text("a text");
  if (lexer.at("[")) {
    if (wanted == AttrKind::reals) return read_reals(lexer);
    return read_integers(lexer);
  }
  if (lexer.accept("reals")) return read_reals(lexer);
  if (lexer.at_number()) {
    if (is_integer_token(lexer.peek()) && wanted != AttrKind::real) return lexer.integer("an integer");
    return lexer.real("a number");
  }
  const Token token = lexer.peek();
  const std::string name = lexer.word("a value (a number, true, false, \"text\", a dtype or a list)");
  const std::optional<DType> dtype = dtype_from_name(name);
  if (!dtype) lexer.fail_unknown(token, fmt::format("'{}' is neither a number, true, false nor a dtype", name), dtype_names());
  return *dtype;
}

Attrs read_attrs(Lexer& lexer, const OpDef& def) {
  Attrs attrs;
  if (!lexer.accept("{")) return attrs;
  while (!lexer.at("}")) {
    if (!attrs.empty()) lexer.expect(",", "or '}' in the attributes");
    const Token token = lexer.peek();
    const std::string name = lexer.name("the name of an attribute");
    const AttrDef* attr = def.find_attr(name);
    if (!attr || attr->name != name) {
      std::vector<std::string> names;
      for (const AttrDef& known : def.attrs) names.push_back(known.name);
      lexer.fail_unknown(token, fmt::format("{} has no attribute '{}'", def.name, name), names);
    }
    if (attrs.has(name)) lexer.fail(token, fmt::format("attribute '{}' stands here twice", name));
    lexer.expect(":", "behind the attribute's name");
    const Token value_token = lexer.peek();
    Attr value = read_attr(lexer, attr->kind);
    if (attr_kind(value) != attr->kind) {
      lexer.fail(value_token, fmt::format("{}: attribute '{}' is {}, here stands {}", def.name, name, attr_kind_text(attr->kind),
                                          attr_kind_text(attr_kind(value))));
    }
    attrs.set(name, std::move(value));
  }
  lexer.expect("}", "to end the attributes");
  return attrs;
}

Loc read_loc(Lexer& lexer, const Loc& absent) {
  if (!lexer.accept("loc")) return absent;
  lexer.expect("(", "behind loc");
  Loc loc;
  const bool unknown = lexer.accept("unknown");
  if (!unknown) loc.file = intern(lexer.quoted_text("a quoted file name"));
  if (!unknown || lexer.at(":")) {
    auto position = [&](std::string_view what) {
      lexer.expect(":", "in the location");
      const Token token = lexer.peek();
      const int64_t value = lexer.integer(what);
      if (value != static_cast<int>(value)) lexer.fail(token, fmt::format("{} is out of range", what));
      return static_cast<int>(value);
    };
    loc.line = position("a line number");
    loc.col = position("a column");
  }
  if (lexer.accept("from")) loc.origin = intern(lexer.quoted_text("a quoted reason"));
  lexer.expect(")", "to end the location");
  return loc;
}

InputRange read_range(Lexer& lexer, const Token& keyword) {
  InputRange range;
  range.input = lexer.name("the name of an input");
  range.lo = lexer.integer("the lowest value");
  lexer.expect("..", "and the highest value");
  range.hi = lexer.integer("the highest value");
  if (lexer.accept("or")) range.also = read_integers(lexer);
  range.loc = read_loc(lexer, lexer.loc(keyword));
  return range;
}

}  // namespace ingot::ir
