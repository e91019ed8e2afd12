// One instance of a block (or the model itself) while its graph is built.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "ir/graph/graph.h"
#include "models/config.h"
#include "models/description.h"

namespace ingot::models {

/// What a name stands for: a value, `none`, or nothing known because of a reported mistake.
struct Slot {
  enum class State : uint8_t { value, absent, poisoned };
  State state = State::poisoned;
  ir::ValueId id = ir::kNone;

  static Slot of(ir::ValueId id) { return {State::value, id}; }
  static Slot none() { return {State::absent, ir::kNone}; }
};

struct Frame {
  const BlockText* block = nullptr;
  std::string prefix;                          ///< "" for the model itself
  std::map<std::string, Slot> values;          ///< inputs and what statements assigned
  std::map<std::string, ir::Constant> places;  ///< layer, nth, layers
  const Config* config = nullptr;

  std::string full(const std::string& name) const { return prefix.empty() ? name : prefix + "." + name; }
  /// " (layer 3, nth 2)", or "" outside the stack.
  std::string where() const {
    const auto layer = places.find("layer");
    if (layer == places.end()) return "";
    return " (layer " + ir::constant_text(layer->second) + ", nth " + ir::constant_text(places.at("nth")) + ")";
  }
  bool is_constant_name(const std::string& name) const {
    if (values.contains(name) || block->find_param(name)) return false;
    if (places.contains(name)) return true;
    try {
      return config->find(name) != nullptr;
    } catch (const Poisoned&) {
      return true;
    }
  }
  ir::ConstantScope scope() const {
    return {[this](const std::string& name) {
              const auto it = places.find(name);
              return it != places.end() ? &it->second : config->find(name);
            },
            [this] {
              std::vector<std::string> names = config->names();
              for (const auto& [name, value] : places) names.push_back(name);
              return names;
            }};
  }
};

}  // namespace ingot::models
