#include "ir/base/attr.h"

#include <algorithm>
#include <bit>

#include "ir/base/error.h"
#include "ir/base/text.h"

namespace ingot::ir {
namespace {

template <class T, class F>
std::string list_text(const std::vector<T>& list, F item) {
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i) text += (i ? ", " : "") + item(list[i]);
  return text + "]";
}

template <class T>
const T& get(const Attrs& attrs, std::string_view name) {
  const Attr* attr = attrs.find(name);
  check(attr && std::holds_alternative<T>(*attr),
        [&] { return "attribute '" + std::string(name) + "' is absent or of another kind"; });
  return std::get<T>(*attr);
}

bool same_real(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (a != a && b != b); }

bool same_attr(const Attr& a, const Attr& b) {
  if (a.index() != b.index()) return false;
  if (const double* x = std::get_if<double>(&a)) return same_real(*x, std::get<double>(b));
  if (const auto* x = std::get_if<std::vector<double>>(&a)) {
    const auto& y = std::get<std::vector<double>>(b);
    return std::equal(x->begin(), x->end(), y.begin(), y.end(), same_real);
  }
  return a == b;
}

}  // namespace

std::string attr_text(const Attr& attr) {
  switch (attr_kind(attr)) {
    case AttrKind::boolean:
      return std::get<bool>(attr) ? "true" : "false";
    case AttrKind::integer:
      return std::to_string(std::get<int64_t>(attr));
    case AttrKind::real:
      return real_text(std::get<double>(attr));
    case AttrKind::text:
      return quoted(std::get<std::string>(attr));
    case AttrKind::dtype:
      return std::string(dtype_name(std::get<DType>(attr)));
    case AttrKind::integers:
      return list_text(std::get<std::vector<int64_t>>(attr), [](int64_t v) { return std::to_string(v); });
    case AttrKind::reals:
      return list_text(std::get<std::vector<double>>(attr), real_text);
  }
  return "";
}

std::string_view attr_kind_text(AttrKind kind) {
  static constexpr std::string_view kTexts[] = {"true or false", "an integer",         "a number",         "a string",
                                                "a dtype",       "a list of integers", "a list of numbers"};
  return kTexts[static_cast<size_t>(kind)];
}

const Attrs::List& Attrs::list() const {
  static const List kNone;
  return list_ ? *list_ : kNone;
}

void Attrs::set(std::string_view name, Attr value) {
  auto changed = std::make_shared<List>(list());
  const auto at = std::lower_bound(changed->begin(), changed->end(), name,
                                   [](const auto& item, std::string_view n) { return item.first < n; });
  if (at != changed->end() && at->first == name) {
    at->second = std::move(value);
  } else {
    changed->emplace(at, std::string(name), std::move(value));
  }
  list_ = std::move(changed);
}

const Attr* Attrs::find(std::string_view name) const {
  for (const auto& [key, value] : list()) {
    if (key == name) return &value;
  }
  return nullptr;
}

bool Attrs::boolean(std::string_view name) const { return get<bool>(*this, name); }
int64_t Attrs::integer(std::string_view name) const { return get<int64_t>(*this, name); }
double Attrs::real(std::string_view name) const { return get<double>(*this, name); }
const std::string& Attrs::text(std::string_view name) const { return get<std::string>(*this, name); }
DType Attrs::dtype(std::string_view name) const { return get<DType>(*this, name); }
const std::vector<int64_t>& Attrs::integers(std::string_view name) const { return get<std::vector<int64_t>>(*this, name); }
const std::vector<double>& Attrs::reals(std::string_view name) const { return get<std::vector<double>>(*this, name); }

bool Attrs::operator==(const Attrs& other) const {
  return list_ == other.list_ || std::equal(begin(), end(), other.begin(), other.end(), [](const auto& a, const auto& b) {
           return a.first == b.first && same_attr(a.second, b.second);
         });
}

}  // namespace ingot::ir
