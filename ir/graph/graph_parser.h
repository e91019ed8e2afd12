// The parser of one graph: statements between { and }. parse.cpp adds the module around it.
#pragma once
#include <string>
#include <vector>

#include "ir/base/lexer.h"
#include "ir/graph/graph.h"
#include "ir/graph/op_def.h"

namespace ingot::ir {

class GraphParser {
 public:
  /// `module` = nullptr: variables are not checked against declarations.
  GraphParser(Lexer& lexer, const Module* module) : lexer_(lexer), module_(module) {}

  /// `graph @name at level { ... }`, the word `graph` taken already.
  Graph graph();
  /// Statements up to the end of the text.
  Graph bare(Level level);
  /// Did the failure come from an op that is not legal at the graph's level?
  bool refused_level() const { return refused_level_; }

 private:
  struct Names {
    std::vector<Token> tokens;
    std::vector<std::string> names;
  };
  struct Header {
    std::string name;
    Level level;
  };

  Header header(std::string default_name, Level default_level);
  void statements(Graph& graph);
  void statement(Graph& graph);
  Phase phase();
  void declaration(Graph& graph, Phase phase);
  void op(Graph& graph, Phase phase);
  void output(Graph& graph);
  void update(Graph& graph);

  Names result_names(Graph& graph);
  std::vector<ValueId> operands(const Graph& graph);
  ValueId value(const Graph& graph);
  std::vector<Type> types(size_t count);
  std::shared_ptr<const Graph> region(const Graph& outer, const std::vector<ValueId>& operands, const Token& op_token);
  void yield(Graph& region);

  void check_new(const Graph& graph, const Token& token, const std::string& name) const;
  void check_level(const Graph& graph, const OpDef& def, const Token& token);
  const Variable* declared(const std::string& name, const Token& token) const;
  void check_read(const Attrs& attrs, const Type& type, const Token& token) const;
  void append(Graph& graph, Op op, Names names, std::vector<Type> types, const Token& op_token);

  Lexer& lexer_;
  const Module* module_;
  int depth_ = 0;
  bool refused_level_ = false;
};

}  // namespace ingot::ir
