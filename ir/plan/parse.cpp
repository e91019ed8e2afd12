// plan.txt, read. The grammar is what print.cpp writes; every mistake is located.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "ir/base/error.h"
#include "ir/base/lexer.h"
#include "ir/base/text.h"
#include "ir/plan/format.h"
#include "ir/plan/plan.h"

namespace ingot::ir {
namespace {

class Parser {
 public:
  Parser(std::string_view text, std::string_view file) : lex_(text, file) {}

  Plan run() {
    header();
    while (!lex_.at_end()) item();
    resolve();
    return std::move(plan_);
  }

 private:
  struct Reference {
    Token token;
    std::string name;
    size_t buffer;  ///< the buffer that refers
  };

  void header() {
    const Token first = lex_.peek();
    if (!lex_.accept("ingot") || !lex_.accept("plan")) lex_.fail(first, "not a plan: the text does not begin with 'ingot plan'");
    const int64_t version = lex_.integer("the format version");
    if (version != kPlanFormat) {
      lex_.fail(first,
                fmt::format("plan format {}; this program reads format {}: compile the model again", version, kPlanFormat));
    }
    lex_.expect("name", "after the format version");
    plan_.name = lex_.quoted_text("the plan's name");
    lex_.expect("target", "after the name");
    plan_.target = lex_.quoted_text("the target");
    lex_.expect("features", "after the target");
    plan_.target_features = lex_.quoted_text("the target's features");
  }

  void item() {
    static const std::vector<std::string> kItems = {"info",  "ignore", "range", "arena",   "buffer", "kernel",
                                                    "param", "state",  "hyper", "compute", "file",   "program"};
    const Token token = lex_.peek();
    const std::string word = lex_.word("a line of the plan");
    if (word == "info") return info();
    if (word == "ignore") return plan_.checkpoint_ignore.push_back(lex_.quoted_text("a pattern"));
    if (word == "range") return range();
    if (word == "arena") return arena();
    if (word == "buffer") return buffer();
    if (word == "kernel") return kernel();
    if (word == "file") return file();
    if (word == "program") return program();
    for (const VariableRole role : {VariableRole::param, VariableRole::state, VariableRole::hyper, VariableRole::compute}) {
      if (word == variable_role_name(role)) return binding(role);
    }
    lex_.fail_unknown(token, fmt::format("no line of a plan begins with '{}'", word), kItems);
  }

  // ---- pieces

  int small(std::string_view what) {
    const Token token = lex_.peek();
    const int64_t value = lex_.integer(what);
    if (value < INT32_MIN || value > INT32_MAX) lex_.fail(token, fmt::format("{} does not fit 32 bits", what));
    return static_cast<int>(value);
  }

  int64_t keyed(std::string_view key) {
    lex_.expect(key, "here");
    return lex_.integer(key);
  }
  int small_keyed(std::string_view key) {
    lex_.expect(key, "here");
    return small(key);
  }

  std::vector<int64_t> integers(std::string_view what) {
    std::vector<int64_t> list;
    lex_.expect("[", what);
    while (!lex_.accept("]")) {
      if (!list.empty()) lex_.expect(",", "between integers");
      list.push_back(lex_.integer(what));
    }
    return list;
  }

  template <size_t N>
  std::array<int64_t, N> fixed(std::string_view what) {
    const Token token = lex_.peek();
    const std::vector<int64_t> list = integers(what);
    if (list.size() != N) lex_.fail(token, fmt::format("{} takes {} integers, {} given", what, N, list.size()));
    std::array<int64_t, N> out;
    std::copy(list.begin(), list.end(), out.begin());
    return out;
  }

  Type type() {
    const Token token = lex_.peek();
    const std::string word = lex_.word("a type");
    const std::optional<DType> dtype = dtype_from_name(word);
    if (!dtype) lex_.fail_unknown(token, fmt::format("no dtype named '{}'", word), {"f32", "bf16", "f16", "i32", "i64", "bool"});
    return {*dtype, integers("behind the dtype")};
  }

  Loc loc() {
    if (!lex_.accept("loc")) return {};
    Loc out;
    lex_.expect("(", "behind loc");
    if (!lex_.accept("none")) out.file = intern(lex_.quoted_text("a file name"));
    lex_.expect(":", "behind the file");
    out.line = small("a line");
    lex_.expect(":", "behind the line");
    out.col = small("a column");
    if (lex_.accept(",")) out.origin = intern(lex_.quoted_text("an origin"));
    lex_.expect(")", "at the end of loc");
    return out;
  }

  template <class E, class Name>
  E choice(std::initializer_list<E> all, Name name, std::string_view what) {
    const Token token = lex_.peek();
    const std::string word = lex_.word(what);
    std::vector<std::string> names;
    for (const E value : all) {
      if (word == name(value)) return value;
      names.emplace_back(name(value));
    }
    lex_.fail_unknown(token, fmt::format("{} cannot be '{}'", what, word), names);
  }

  BufferId buffer_ref() {
    if (lex_.accept("none")) return kNoBuffer;
    const Token token = lex_.peek();
    return find_buffer(token, lex_.value_name("a buffer or none"));
  }

  BufferId find_buffer(const Token& token, const std::string& name) {
    const auto it = ids_.find(name);
    if (it == ids_.end()) lex_.fail(token, fmt::format("no buffer named {}", value_text(name)));
    return it->second;
  }

  int find_index(const Token& token, const std::string& name, const auto& list, std::string_view what) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].name == name) return static_cast<int>(i);
    }
    lex_.fail(token, fmt::format("no {} named '{}'", what, name));
  }

  // ---- lines

  void info() {
    std::string key = lex_.quoted_text("a key");
    lex_.expect("=", "behind the key");
    plan_.info.emplace_back(std::move(key), lex_.quoted_text("a value"));
  }

  void range() {
    InputRange r;
    r.input = lex_.name("an input");
    r.lo = lex_.integer("the least value");
    lex_.expect("..", "between the bounds");
    r.hi = lex_.integer("the greatest value");
    if (lex_.accept("or")) r.also = integers("behind or");
    r.loc = loc();
    plan_.ranges.push_back(std::move(r));
  }

  void arena() {
    Arena a;
    a.name = lex_.name("an arena");
    a.bytes = lex_.integer("the arena's bytes");
    plan_.arenas.push_back(std::move(a));
  }

  void buffer() {
    using R = BufferRole;
    Buffer b;
    const Token token = lex_.peek();
    b.name = lex_.value_name("a buffer");
    if (!ids_.emplace(b.name, static_cast<BufferId>(plan_.buffers.size())).second) {
      lex_.fail(token, fmt::format("a second buffer named {}", value_text(b.name)));
    }
    lex_.expect(":", "behind the name");
    b.type = type();
    b.role = choice({R::param, R::state, R::hyper, R::compute, R::input, R::output, R::temp, R::workspace}, buffer_role_name,
                    "a role");
    if (lex_.accept("of")) {
      const Token at = lex_.peek();
      owners_.push_back({at, lex_.name("a program"), plan_.buffers.size()});
    }
    lex_.expect("in", "behind the role");
    const Token at = lex_.peek();
    b.arena = find_index(at, lex_.name("an arena"), plan_.arenas, "arena");
    b.offset = keyed("at");
    b.bytes = keyed("bytes");
    if (lex_.accept("live")) {
      b.first = small("the first call");
      lex_.expect("..", "between the calls");
      b.last = small("the last call");
    }
    if (lex_.accept("view")) {
      lex_.expect("of", "behind view");
      const Token seen = lex_.peek();
      views_.push_back({seen, lex_.value_name("a buffer"), plan_.buffers.size()});
    }
    b.loc = loc();
    plan_.buffers.push_back(std::move(b));
  }

  void kernel() {
    Kernel k;
    k.name = lex_.name("a kernel");
    lex_.expect("symbol", "behind the name");
    k.symbol = lex_.quoted_text("a symbol");
    lex_.expect("image", "behind the symbol");
    k.image = lex_.quoted_text("an image");
    lex_.expect("source", "behind the image");
    k.source = lex_.quoted_text("a source");
    k.args = small_keyed("args");
    k.sizes = small_keyed("sizes");
    k.threads = small_keyed("threads");
    k.shared_bytes = small_keyed("shared");
    k.registers = small_keyed("registers");
    k.spill_bytes = small_keyed("spills");
    plan_.kernels.push_back(std::move(k));
  }

  void binding(VariableRole role) {
    Binding b;
    Variable& v = b.variable;
    v.role = role;
    v.name = lex_.value_name("a variable");
    lex_.expect(":", "behind the name");
    v.type = type();
    lex_.expect("=", "behind the type");
    v.init = lex_.quoted_text("an initial value");
    lex_.expect("at", "behind the initial value");
    b.buffer = buffer_ref();
    v.trainable = !lex_.accept("frozen");
    v.saved = !lex_.accept("unsaved");
    if (lex_.accept("lr")) v.lr_factor = lex_.real("a factor");
    if (lex_.accept("decay")) v.decay_factor = lex_.real("a factor");
    v.loc = loc();
    plan_.bindings.push_back(std::move(b));
  }

  void file() {
    const Token token = lex_.peek();
    std::string name = lex_.quoted_text("a file name");
    FileEntry entry;
    entry.bytes = keyed("bytes");
    lex_.expect("hash", "behind the bytes");
    const Token at = lex_.peek();
    const std::string digits = lex_.quoted_text("a hash");
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), entry.hash, 16);
    if (error != std::errc() || stop != digits.data() + digits.size() || digits.size() != 16) {
      lex_.fail(at, "a hash is 16 hexadecimal digits");
    }
    plan_.files[name];
    if (!plan_.listed.emplace(std::move(name), entry).second) lex_.fail(token, "a second file of this name");
  }

  // ---- programs

  void program() {
    Program p;
    p.name = lex_.name("a program");
    lex_.expect("{", "behind the program's name");
    while (!lex_.accept("}")) {
      if (lex_.accept("input")) {
        p.inputs.push_back(port());
      } else if (lex_.accept("output")) {
        p.outputs.push_back(port());
      } else {
        p.calls.push_back(call());
      }
    }
    plan_.programs.push_back(std::move(p));
  }

  Port port() {
    Port p;
    p.name = lex_.name("a port");
    lex_.expect("=", "behind the port's name");
    p.buffer = buffer_ref();
    return p;
  }

  Call call() {
    using K = CallKind;
    Call c;
    c.kind = choice({K::launch, K::gemm, K::copy, K::fill, K::init, K::collective}, call_kind_name, "a line of a program");
    c.label = lex_.quoted_text("a label");
    lex_.expect("(", "before the arguments");
    while (!lex_.accept(")")) {
      if (!c.args.empty()) lex_.expect(",", "between arguments");
      Access access;
      access.mode = choice({AccessMode::read, AccessMode::write, AccessMode::inout}, access_mode_name, "an access");
      access.buffer = buffer_ref();
      c.args.push_back(access);
    }
    if (lex_.accept("kernel")) c.kernel = lex_.name("a kernel");
    if (lex_.accept("sizes")) c.sizes = integers("behind sizes");
    if (lex_.accept("tasks")) c.tasks = lex_.integer("the tasks");
    if (lex_.at("m")) c.gemm = gemm();
    if (lex_.accept("value")) c.fill = lex_.real("a value");
    if (lex_.accept("from")) c.init = lex_.quoted_text("an initial value");
    if (lex_.accept("lane")) c.lane = small("a lane");
    if (lex_.accept("after")) {
      const Token token = lex_.peek();
      for (const int64_t index : integers("behind after")) {
        if (index < 0 || index > INT32_MAX) lex_.fail(token, "no call has this index");
        c.after.push_back(static_cast<int>(index));
      }
    }
    if (lex_.accept("flops")) c.flops = lex_.real("operations");
    if (lex_.accept("bytes")) c.bytes = lex_.real("bytes");
    c.loc = loc();
    return c;
  }

  Gemm gemm() {
    Gemm g;
    g.m = keyed("m");
    g.n = keyed("n");
    g.k = keyed("k");
    g.batch = keyed("batch");
    lex_.expect("ta", "behind batch");
    g.ta = lex_.boolean("ta");
    lex_.expect("tb", "behind ta");
    g.tb = lex_.boolean("tb");
    lex_.expect("ld", "behind tb");
    const auto ld = fixed<4>("ld");
    g.lda = ld[0], g.ldb = ld[1], g.ldc = ld[2], g.ldd = ld[3];
    lex_.expect("strides", "behind ld");
    const auto strides = fixed<4>("strides");
    g.stride_a = strides[0], g.stride_b = strides[1], g.stride_c = strides[2], g.stride_d = strides[3];
    lex_.expect("alpha", "behind strides");
    g.alpha = lex_.real("alpha");
    lex_.expect("beta", "behind alpha");
    g.beta = lex_.real("beta");
    lex_.expect("algorithm", "behind beta");
    g.algorithm = lex_.quoted_text("an algorithm");
    return g;
  }

  // Buffers name their program and owner before those were read.
  void resolve() {
    for (const Reference& r : owners_) plan_.buffers[r.buffer].program = find_index(r.token, r.name, plan_.programs, "program");
    for (const Reference& r : views_) plan_.buffers[r.buffer].view_of = find_buffer(r.token, r.name);
  }

  Lexer lex_;
  Plan plan_;
  std::unordered_map<std::string, BufferId> ids_;
  std::vector<Reference> owners_, views_;
};

}  // namespace

Plan parse_plan(std::string_view text, std::string_view file) { return Parser(text, file).run(); }

}  // namespace ingot::ir
