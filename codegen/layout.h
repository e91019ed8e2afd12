// Where variables lie. The graphs say which want to be side by side: those that one concat reads, and those whose new values are
// parts of one value. So such a concat is a view, such new values are written in place, and one launch walks all of them.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace ingot::codegen {

/// Variables of one role and dtype that lie together.
struct Segment {
  struct Member {
    std::string variable;
    int64_t offset = 0, bytes = 0;  ///< from the segment's start
    bool operator==(const Member&) const = default;
  };
  ir::VariableRole role = ir::VariableRole::param;
  ir::DType dtype = ir::DType::f32;
  int64_t bytes = 0;
  /// What lies between the members is zero, and stays so: a graph reads it as zeros.
  bool zero_gaps = false;
  std::vector<Member> members;  ///< by offset

  struct Gap {
    int64_t offset = 0, bytes = 0;
  };
  /// What no member covers, the tail included.
  std::vector<Gap> gaps() const;
};

class Layout {
 public:
  /// Where a variable lies within its segment.
  struct Place {
    int segment = -1;  ///< -1: it lies alone
    int64_t offset = 0;
  };
  Layout() = default;
  Layout(const ir::Module& module, const std::vector<const ir::Graph*>& graphs);

  const std::vector<Segment>& segments() const { return segments_; }
  Place place(std::string_view variable) const;

 private:
  void request(Segment wanted);
  void concats(const ir::Module& module, const ir::Graph& graph, const struct Parts& parts);
  void updates(const ir::Module& module, const ir::Graph& graph, const struct Parts& parts);

  std::vector<Segment> segments_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace ingot::codegen
