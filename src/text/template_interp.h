#pragma once
// Walks a program and writes its text. One Interpreter is one render: it owns the budget, the
// caller's variables and the clock, and is used by one thread.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template_ast.h"

namespace kvikk::jinja {

// The arguments of a call on their way to a builtin or macro. `name` is for error messages.
struct Call {
  std::string_view name;
  Value self = {};  // what a method belongs to
  std::vector<Value> args = {};
  std::vector<std::pair<std::string, Value>> keywords = {};

  const Value* keyword(std::string_view key) const;
};

// Spreads a call over named parameters as Python does; those not passed stay missing. Fails for
// fewer than `required`, for too many, for unknown and for doubled ones.
std::vector<Value> bind(const Call& call, std::initializer_list<const char*> names,
                        size_t required);
// The same for functions that take no names.
void expect_positional(const Call& call, size_t least, size_t most);

// The variables of the caller as a dict, with the reference library's defaults.
Value import_variables(Interpreter& vm, const nlohmann::ordered_json& variables);

// "2026-01-02T03:04:05" or empty; how strftime(format) prints it.
std::string format_time(Interpreter& vm, const std::string& now, std::string_view format);

class Interpreter {
 public:
  Interpreter(const Program& program, const TemplateOptions& options);
  std::string render(const nlohmann::ordered_json& variables);

  Budget& budget() { return budget_; }
  const std::string& now() const { return now_; }
  Value call(const Value& callee, Call& call);
  std::string call_macro(const Macro& macro, Call& call);
  std::string render_recursive(const Stmt& loop, const Ref<Frame>& closure, const Value& over,
                               int64_t depth0);
  // One element of a loop with a condition, as the condition's frame sees it; false where it fails.
  bool passes_filter(const ForLoop& loop, Frame& frame, Value& item);
  void enter(const Scope& scope, Frame& frame);
  void leave(const Scope& scope, Frame& frame);

  // Counts everything that stands within something else, so that no template exhausts the stack.
  class Depth {
   public:
    explicit Depth(Interpreter& vm) : vm_(vm) {
      if (vm_.depth_ == vm_.budget_.limits().depth_max) vm_.too_deep();
      ++vm_.depth_;
    }
    ~Depth() { --vm_.depth_; }

   private:
    Interpreter& vm_;
  };

 private:
  friend class Depth;
  enum class Flow { kNext, kBreak, kContinue };
  [[noreturn]] void too_deep() const;

  // Statements.
  Flow run(const Body& body, Frame& frame, Text& out);
  Flow run(const Stmt& statement, Frame& frame, Text& out);
  Flow run_if(const Stmt& statement, Frame& frame, Text& out);
  Flow run_for(const Stmt& statement, Frame& frame, Text& out, Ref<Frame> around, const Value& over,
               int64_t depth0);
  bool run_loop_body(const Stmt& statement, Frame& frame, Text& out, Iterator& source,
                     Loop* extended);
  Flow run_with(const Stmt& statement, Frame& frame, Text& out);
  Flow run_filter_block(const Stmt& statement, Frame& frame, Text& out);
  Flow run_set_block(const Stmt& statement, Frame& frame);
  void run_set(const Stmt& statement, Frame& frame);
  void run_call_block(const Stmt& statement, Frame& frame, Text& out);
  void assign(const Expr& target, Frame& frame, Value value);
  void check_namespaces(const Expr& target, Frame& frame);
  void bind_macro(const MacroBody& body, Call& call, Frame& frame);

  // Expressions.
  Value eval(const Expr& expr, Frame& frame);
  Value eval_node(const Expr& expr, Frame& frame);
  Value eval_name(const Expr& expr, Frame& frame);
  Value eval_list(const Expr& expr, Frame& frame);
  Value eval_dict(const Expr& expr, Frame& frame);
  Value eval_concat(const Expr& expr, Frame& frame);
  Value eval_compare(const Expr& expr, Frame& frame);
  Value eval_condition(const Expr& expr, Frame& frame);
  Value eval_call(const Expr& expr, Frame& frame, const Value* caller);
  Value eval_filter_or_test(const Expr& expr, Frame& frame);
  Value eval_bound(const ExprPtr& bound, Frame& frame);
  void eval_arguments(const CallArgs& args, Frame& frame, Call& call);
  Value& slot(const Variable& variable, Frame& frame);
  Value resolve(std::string_view name);

  const Program& program_;
  std::string now_;
  Budget budget_;
  int depth_ = 0;
  Value variables_;          // dict
  Value filter_block_text_;  // what the innermost running filter of a block filters
};

Value find_global(Interpreter& vm, std::string_view name);  // missing where there is none

}  // namespace kvikk::jinja
