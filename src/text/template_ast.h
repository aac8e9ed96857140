#pragma once
// A parsed template: statements and expressions, with every variable already resolved to a slot of
// a frame (template_scope.cpp), so that rendering looks up no names but those of the caller's
// variables.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template_objects.h"
#include "text/template_ops.h"

namespace kvikk::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;
struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

// A variable: `hops` frames outwards, then slot number `slot`.
struct Variable {
  uint32_t hops = 0;
  uint32_t slot = 0;
};

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star;         // *args
  ExprPtr double_star;  // **kwargs
};

enum class ExprKind : uint8_t {
  kData,           // text between tags: value
  kConst,          // value
  kName,           // name, variable; as a target too
  kNamespaceItem,  // only as a target: name.text, variable
  kList,           // items
  kTuple,          // items; as a target too
  kDict,           // items: key, value, key, value, ...
  kGetattr,        // items[0].name
  kGetitem,        // items[0][items[1]]
  kSlice,          // items[0][items[1]:items[2]:items[3]], each bound may be null
  kCall,           // items[0](args)
  kFilter,         // items[0]|name(args); items[0] null: the text of the enclosing filter block
  kTest,           // items[0] is name(args)
  kNot,
  kNegative,
  kPositive,
  kBinary,  // items[0] operation items[1]
  kAnd,
  kOr,
  kConcat,   // items[0] ~ items[1] ~ ...
  kCompare,  // items[0] comparisons[0] items[1] comparisons[1] ...
  kCond,     // items[1] if items[0] else items[2]; items[2] may be null
};

struct Expr {
  Expr(ExprKind what, int where) : kind(what), line(where) {}
  ExprKind kind;
  Operator operation = Operator::kAdd;
  bool stores = false;  // this name is assigned, not read
  int line;
  int depth = 1;  // levels of expressions below and including this one
  Variable variable;
  std::string name;
  std::string text;
  Value value;
  std::vector<ExprPtr> items;
  std::vector<CompareOp> comparisons;
  std::unique_ptr<CallArgs> args;
  Builtin builtin = nullptr;  // of a filter or test; null where nothing has that name
};

// What happens to the variables of a scope on its way in. On the way out all of them are unset.
struct ScopeEntry {
  enum class Kind { kParameter, kUnset, kAlias, kResolve };
  Kind kind;
  uint32_t slot;
  Variable source;   // kAlias: the variable of an outer scope that this one starts from
  std::string name;  // kResolve: the name among the caller's variables
};
using Scope = std::vector<ScopeEntry>;

// A macro, or the body of a call block, which is a macro without a name.
struct MacroBody {
  struct Parameter {
    std::string name;
    ExprPtr default_value;  // may be null
    uint32_t slot = 0;
    int line = 0;
  };
  std::string name;
  bool anonymous = false;
  std::vector<Parameter> parameters;
  bool explicit_caller = false;  // `caller` is among the parameters
  bool takes_caller = false;
  bool takes_keywords = false;
  bool takes_varargs = false;
  uint32_t caller_slot = 0, keywords_slot = 0, varargs_slot = 0;
  Scope scope;
  uint32_t slot_count = 0;
  Body body;
};

struct Branch {
  ExprPtr test;  // null: else
  int line = 0;
  Body body;
};

enum class StmtKind : uint8_t {
  kOutput,       // exprs
  kIf,           // branches
  kFor,          // loop
  kMacro,        // macro, variable
  kCallBlock,    // macro is the block, exprs[0] the call
  kGeneration,   // macro is the block
  kFilterBlock,  // body, exprs[0] the filters
  kWith,         // targets = exprs, body
  kSet,          // targets[0] = exprs[0]
  kSetBlock,     // targets[0] = body, through the filters exprs[0] if any
  kBreak,
  kContinue,
  kRefused,  // include, import, from, extends: an error when reached; names may be targets
};

struct ForLoop {
  ExprPtr target, iterable, test;
  ExprPtr filter_target;  // the target again, as a variable of the frame in which `test` runs
  bool recursive = false;
  bool extended = false;  // `loop` is used
  uint32_t loop_slot = 0;
  uint32_t slot_count = 0;         // of the frame of a recursive loop
  uint32_t filter_slot_count = 0;  // of the frame in which `test` runs
  Scope filter_scope, else_scope;
  Body else_body;
  bool has_else = false;
};

struct Stmt {
  Stmt(StmtKind what, int where) : kind(what), line(where) {}
  StmtKind kind;
  int line;
  Variable variable;
  std::string name;
  std::vector<ExprPtr> targets, exprs;
  std::vector<Branch> branches;
  Body body;
  Scope scope;
  std::unique_ptr<ForLoop> loop;
  std::unique_ptr<MacroBody> macro;
};

struct Program {
  Body body;
  Scope scope;
  uint32_t slot_count = 0;
};

// Steps of parse(), in order.
Program parse_program(const std::string& source);  // template_parser.cpp
void resolve_variables(Program& program);          // template_scope.cpp

// Null where nothing has that name. template_filters.cpp, template_tests.cpp
Builtin find_filter(std::string_view name);
Builtin find_test(std::string_view name);

}  // namespace kvikk::jinja
