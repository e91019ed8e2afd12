// `extends`: a file laid over the one it starts from.
#pragma once
#include <map>
#include <string>

#include "models/yaml.h"

namespace ingot::models {

/// Parses the text and everything it extends (looked up beside the file that says so). Maps merge key by key, everything
/// else is replaced; what was replaced is kept in NodeEntry::replaced. `sources` gets the text of every file read.
NodePtr load_merged(const std::string& text, const std::string& file, std::map<std::string, std::string>& sources,
                    Report& report);

/// The whole file. UserError (located at `from`, if known) when it cannot be read.
std::string read_file(const std::string& path, const ir::Loc& from);

}  // namespace ingot::models
