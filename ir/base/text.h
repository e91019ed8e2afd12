// Small text helpers shared by every printer, parser and message.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::ir {

/// Shortest decimal that parses back to the same double, always recognisable as a real: "1.0", "1e-05", "-inf", "nan".
std::string real_text(double value);
/// Double-quoted with \" \\ \n \t \xNN escapes; UTF-8 passes through, any other byte is escaped.
std::string quoted(std::string_view text);
/// The inverse of quoted() (input includes the quotes). False if malformed.
bool unquote(std::string_view text, std::string& out);
/// The candidate nearest to `name` by edit distance (transpositions count one), or "" when none is near enough.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);
/// Shell-style match: `*` any run, `?` one character; everything else literal.
bool glob_match(std::string_view pattern, std::string_view text);
/// Is the text valid UTF-8?
bool valid_utf8(std::string_view text);
/// 64-bit content hash (FNV-1a, then mixed), stable across machines and versions: seeds and cache keys use it.
uint64_t hash64(std::string_view text);

}  // namespace ingot::ir
