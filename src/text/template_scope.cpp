// Resolves every variable to a slot of a frame, by the rules that Jinja2 has from compiling
// templates to Python functions:
//   - a for, with, macro, call, filter or set block is a scope; what it assigns ends with it;
//   - a scope that assigns a name starts from the value that the name has outside, each time anew;
//   - an if is no scope;
//   - macros, call blocks, recursive loops and loop conditions are functions: their variables live
//   in
//     a frame of their own, and they see the frames around them as these are at the time of the
//     call.
// Variables of different scopes of one function share a slot where their names and depths agree, as
// they do there.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "text/template_ast.h"

namespace kvikk::jinja {
namespace {

// What becomes one frame at run time.
struct FunctionScope {
  FunctionScope* outer = nullptr;
  uint32_t depth = 0;
  std::map<std::pair<int, std::string>, uint32_t> slots = {};

  explicit FunctionScope(FunctionScope* around)
      : outer(around), depth(around == nullptr ? 0 : around->depth + 1) {}
  uint32_t slot(int level, const std::string& name) {
    return slots.try_emplace({level, name}, static_cast<uint32_t>(slots.size())).first->second;
  }
};

using Load = ScopeEntry::Kind;

// The names of one scope. A branch of an if collects its names in an overlay of the scope it is in,
// because what one branch assigns is not yet known to the next.
class Symbols {
 public:
  Symbols(Symbols* parent, FunctionScope* in, int level)
      : function(in), level_(level), parent_(parent) {}
  explicit Symbols(Symbols* base)
      : function(base->function), level_(base->level_), parent_(base->parent_), base_(base) {}

  struct Found {
    const Symbols* where = nullptr;
    Load load = Load::kUnset;
  };
  Found find(const std::string& name) const {
    for (const Symbols* scope = this; scope != nullptr; scope = scope->parent_) {
      const Symbols* same = scope;
      for (; same != nullptr; same = same->base_) {
        const auto found = same->loads_.find(name);
        if (found != same->loads_.end()) return {scope, found->second};
      }
    }
    return {};
  }

  void declare_parameter(const std::string& name) {
    stores_.insert(name);
    loads_[name] = Load::kParameter;
  }
  void load(const std::string& name) {
    if (find(name).where == nullptr) loads_[name] = Load::kResolve;
  }
  void store(const std::string& name) {
    stores_.insert(name);
    if (!has(name)) loads_[name] = is_known_outside(name) ? Load::kAlias : Load::kUnset;
  }
  // What only some branches assign has, in the others, the value from outside.
  void merge_branches(const std::vector<const Symbols*>& branches) {
    std::set<std::string> fresh;
    for (const Symbols* branch : branches) {
      for (const std::string& name : branch->stores_) {
        if (!stores(name)) fresh.insert(name);
      }
    }
    for (const Symbols* branch : branches) {
      for (const auto& [name, how] : branch->loads_) loads_[name] = how;
      stores_.insert(branch->stores_.begin(), branch->stores_.end());
    }
    for (const std::string& name : fresh) {
      loads_[name] = is_known_outside(name) ? Load::kAlias : Load::kResolve;
    }
  }

  // Where `name` lives, seen from code of the function `from`.
  Variable variable(const std::string& name, const FunctionScope& from, int line) const {
    const Found found = find(name);
    if (found.where == nullptr) {
      fail_at(line, "'", name, "' cannot be used in the filter of a set block");
    }
    FunctionScope* in = found.where->function;
    return {from.depth - in->depth, in->slot(found.where->level_, name)};
  }

  Scope entries() const {
    Scope scope;
    for (const auto& [name, how] : loads_) {
      ScopeEntry entry{how, function->slot(level_, name), {}, {}};
      if (how == Load::kAlias) entry.source = parent_->variable(name, *function, 0);
      if (how == Load::kResolve) entry.name = name;
      scope.push_back(std::move(entry));
    }
    return scope;
  }

  int level() const { return level_; }
  FunctionScope* const function;

 private:
  bool has(const std::string& name) const {
    return loads_.count(name) != 0 || (base_ != nullptr && base_->has(name));
  }
  bool stores(const std::string& name) const {
    return stores_.count(name) != 0 || (base_ != nullptr && base_->stores(name));
  }
  bool is_known_outside(const std::string& name) const {
    return parent_ != nullptr && parent_->find(name).where != nullptr;
  }

  int level_;
  Symbols* parent_;
  Symbols* base_ = nullptr;
  std::map<std::string, Load> loads_;
  std::set<std::string> stores_;
};

// Calls visit(expr) for every expression directly in `node`.
template <class Visit>
void for_each_child(const Expr& node, const Visit& visit) {
  const auto look = [&](const ExprPtr& child) {
    if (child) visit(*child);
  };
  for (const ExprPtr& item : node.items) look(item);
  if (!node.args) return;
  for (const ExprPtr& item : node.args->positional) look(item);
  for (const auto& [name, item] : node.args->keywords) look(item);
  look(node.args->star);
  look(node.args->double_star);
}

// Finds which of some names a body reads before it assigns them, blocks within it included.
class UndeclaredNames {
 public:
  explicit UndeclaredNames(std::set<std::string> names) : names_(std::move(names)) {}
  void visit(const Body& body) {
    for (const auto& statement : body) visit(*statement);
  }
  bool found(const std::string& name) const { return found_.count(name) != 0; }

 private:
  void visit(const ExprPtr& expr) {
    if (expr) visit(*expr);
  }
  void visit(const std::vector<ExprPtr>& exprs) {
    for (const ExprPtr& expr : exprs) visit(expr);
  }
  void visit(const Expr& expr) {
    if (expr.kind == ExprKind::kName) {
      if (expr.stores) {
        names_.erase(expr.name);
      } else if (names_.count(expr.name) != 0) {
        found_.insert(expr.name);
      }
    }
    for_each_child(expr, [&](const Expr& child) { visit(child); });
  }
  void visit(const MacroBody& macro) {
    for (const auto& parameter : macro.parameters) names_.erase(parameter.name);
    for (const auto& parameter : macro.parameters) visit(parameter.default_value);
    visit(macro.body);
  }
  void visit(const Stmt& statement) {
    if (statement.kind == StmtKind::kFilterBlock) {
      visit(statement.body);
      visit(statement.exprs);
      return;
    }
    if (statement.kind != StmtKind::kRefused) visit(statement.targets);
    if (statement.loop) visit(statement.loop->target);
    if (statement.loop) visit(statement.loop->iterable);
    visit(statement.exprs);
    for (const Branch& branch : statement.branches) {
      visit(branch.test);
      visit(branch.body);
    }
    visit(statement.body);
    if (statement.loop) visit(statement.loop->else_body);
    if (statement.loop) visit(statement.loop->test);
    if (statement.macro) visit(*statement.macro);
  }

  std::set<std::string> names_;
  std::set<std::string> found_;
};

// Collects the names that a scope reads and assigns itself: stops where an inner scope begins.
class NameCollector {
 public:
  explicit NameCollector(Symbols& symbols) : symbols_(&symbols) {}

  void collect(const Body& body) {
    for (const auto& statement : body) collect(*statement);
  }
  void collect(const Expr& expr) {
    if (expr.kind == ExprKind::kName && expr.stores) {
      symbols_->store(expr.name);
    } else if (expr.kind == ExprKind::kName || expr.kind == ExprKind::kNamespaceItem) {
      symbols_->load(expr.name);
    }
    for_each_child(expr, [&](const Expr& child) { collect(child); });
  }
  void collect_parameters(const Expr& target) {
    if (target.kind == ExprKind::kName) symbols_->declare_parameter(target.name);
    for (const ExprPtr& item : target.items) collect_parameters(*item);
  }

 private:
  void collect(const std::vector<ExprPtr>& exprs) {
    for (const ExprPtr& expr : exprs) collect(*expr);
  }

  void collect(const Stmt& statement) {
    switch (statement.kind) {
      case StmtKind::kIf:
        return collect_if(statement);
      case StmtKind::kMacro:
        return symbols_->store(statement.name);
      case StmtKind::kFor:
        return collect(*statement.loop->iterable);
      case StmtKind::kSetBlock:
        return collect(statement.targets);
      case StmtKind::kGeneration:
        return;
      case StmtKind::kWith:
      case StmtKind::kCallBlock:
      case StmtKind::kFilterBlock:
        return collect(statement.exprs);
      default:
        collect(statement.exprs);
        collect(statement.targets);
    }
  }

  // An elif is an if of its own within one common branch; the else is another branch.
  void collect_if(const Stmt& statement) {
    collect(*statement.branches[0].test);
    Symbols* const outer = symbols_;
    const auto collect_branch = [&](Symbols& overlay, const Body& body) {
      symbols_ = &overlay;
      collect(body);
    };
    Symbols first(outer), others(outer), last(outer);
    collect_branch(first, statement.branches[0].body);
    for (size_t i = 1; i < statement.branches.size(); ++i) {
      const Branch& branch = statement.branches[i];
      if (!branch.test) {
        collect_branch(last, branch.body);
        continue;
      }
      symbols_ = &others;
      collect(*branch.test);
      Symbols overlay(&others);
      collect_branch(overlay, branch.body);
      others.merge_branches({&overlay});
    }
    symbols_ = outer;
    outer->merge_branches({&first, &others, &last});
  }

  Symbols* symbols_;
};

// Walks the template with the symbols of the scope it is in, and fills in what the syntax tree
// leaves open. `soft`: inside an if, where an unknown filter is an error only when it is reached.
class Resolver {
 public:
  void run(Program& program) {
    FunctionScope function(nullptr);
    Symbols symbols(nullptr, &function, 0);
    NameCollector(symbols).collect(program.body);
    resolve(program.body, {&symbols, &function, false});
    program.scope = symbols.entries();
    program.slot_count = static_cast<uint32_t>(function.slots.size());
  }

 private:
  struct Place {
    Symbols* symbols;
    FunctionScope* function;  // whose code this is
    bool soft;
  };
  Place soft(Place place) const { return {place.symbols, place.function, true}; }

  void resolve(Body& body, Place place) {
    for (auto& statement : body) resolve(*statement, place);
  }
  void resolve(std::vector<ExprPtr>& exprs, Place place) {
    for (ExprPtr& expr : exprs) resolve(*expr, place);
  }

  void resolve(Expr& expr, Place place) {
    if (expr.kind == ExprKind::kName || expr.kind == ExprKind::kNamespaceItem) {
      expr.variable = place.symbols->variable(expr.name, *place.function, expr.line);
    }
    if ((expr.kind == ExprKind::kFilter || expr.kind == ExprKind::kTest) &&
        expr.builtin == nullptr && !place.soft) {
      const char* what = expr.kind == ExprKind::kFilter ? "filter" : "test";
      fail_at(expr.line, "no ", what, " named '", expr.name, "'");
    }
    const Place inside = expr.kind == ExprKind::kCond ? soft(place) : place;
    for_each_child(expr, [&](Expr& child) { resolve(child, inside); });
  }

  void resolve(Stmt& statement, Place place) {
    switch (statement.kind) {
      case StmtKind::kFor:
        return resolve_for(statement, place);
      case StmtKind::kMacro:
        resolve_macro(*statement.macro, statement.line, place);
        statement.variable =
            place.symbols->variable(statement.name, *place.function, statement.line);
        return;
      case StmtKind::kCallBlock:
      case StmtKind::kGeneration:
        resolve_macro(*statement.macro, statement.line, place);
        return resolve(statement.exprs, place);
      case StmtKind::kWith:
      case StmtKind::kFilterBlock:
      case StmtKind::kSetBlock:
        return resolve_block(statement, place);
      case StmtKind::kIf:
        for (Branch& branch : statement.branches) {
          if (branch.test) resolve(*branch.test, soft(place));
          resolve(branch.body, soft(place));
        }
        return;
      default:
        resolve(statement.exprs, place);
        resolve(statement.targets, place);
    }
  }

  void resolve_block(Stmt& statement, Place place) {
    Symbols inner(place.symbols, place.function, place.symbols->level() + 1);
    NameCollector names(inner);
    if (statement.kind == StmtKind::kWith) {
      for (const ExprPtr& target : statement.targets) names.collect_parameters(*target);
    }
    names.collect(statement.body);
    if (statement.kind == StmtKind::kFilterBlock) names.collect(*statement.exprs[0]);
    const Place inside{&inner, place.function, false};
    resolve(statement.body, inside);
    resolve(statement.targets, statement.kind == StmtKind::kWith ? inside : place);
    resolve(statement.exprs, statement.kind == StmtKind::kWith ? place : inside);
    statement.scope = inner.entries();
  }

  void resolve_macro(MacroBody& macro, int line, Place place) {
    FunctionScope function(place.function);
    Symbols inner(place.symbols, &function, place.symbols->level() + 1);
    NameCollector names(inner);
    for (const auto& parameter : macro.parameters) {
      inner.declare_parameter(parameter.name);
      if (parameter.name == "caller") macro.explicit_caller = true;
    }
    for (const auto& parameter : macro.parameters) {
      if (parameter.default_value) names.collect(*parameter.default_value);
    }
    names.collect(macro.body);
    find_special_parameters(macro, line, inner);
    const Place inside{&inner, &function, false};
    for (auto& parameter : macro.parameters) {
      parameter.slot = inner.variable(parameter.name, function, line).slot;
      if (parameter.default_value) resolve(*parameter.default_value, inside);
    }
    resolve(macro.body, inside);
    macro.scope = inner.entries();
    macro.slot_count = static_cast<uint32_t>(function.slots.size());
  }

  // `caller`, `kwargs` and `varargs` are parameters where the body reads them.
  void find_special_parameters(MacroBody& macro, int line, Symbols& inner) {
    UndeclaredNames undeclared({"caller", "kwargs", "varargs"});
    undeclared.visit(macro.body);
    const auto is_parameter = [&](std::string_view name) {
      return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                         [&](const auto& parameter) { return parameter.name == name; });
    };
    const auto declare = [&](const std::string& name) {
      inner.declare_parameter(name);
      return inner.variable(name, *inner.function, line).slot;
    };
    if (undeclared.found("caller")) {
      macro.takes_caller = true;
      if (!macro.explicit_caller) {
        macro.caller_slot = declare("caller");
      } else {
        for (const auto& parameter : macro.parameters) {
          if (parameter.name == "caller" && !parameter.default_value) {
            fail_at(line, "the parameter 'caller' must be left out or have a default");
          }
        }
      }
    }
    if (undeclared.found("kwargs") && !is_parameter("kwargs")) {
      macro.takes_keywords = true;
      macro.keywords_slot = declare("kwargs");
    }
    if (undeclared.found("varargs") && !is_parameter("varargs")) {
      macro.takes_varargs = true;
      macro.varargs_slot = declare("varargs");
    }
  }

  void resolve_for(Stmt& statement, Place place) {
    ForLoop& loop = *statement.loop;
    FunctionScope own(place.function);
    FunctionScope* const function = loop.recursive ? &own : place.function;
    Symbols inner(place.symbols, function, place.symbols->level() + 1);
    UndeclaredNames undeclared({"loop"});
    undeclared.visit(statement.body);
    loop.extended = loop.recursive || undeclared.found("loop");
    if (loop.extended) {
      inner.declare_parameter("loop");
      loop.loop_slot = inner.variable("loop", *function, statement.line).slot;
    }
    NameCollector names(inner);
    names.collect_parameters(*loop.target);
    names.collect(statement.body);
    if (loop.test) resolve_loop_test(loop, place);
    fail_if_loop_is_stored(statement);
    const Place inside{&inner, function, false};
    resolve(*loop.target, inside);
    resolve(*loop.iterable, place);
    resolve(statement.body, inside);
    statement.scope = inner.entries();
    if (loop.has_else) {
      Symbols otherwise(place.symbols, function, place.symbols->level() + 1);
      NameCollector(otherwise).collect(loop.else_body);
      resolve(loop.else_body, {&otherwise, function, false});
      loop.else_scope = otherwise.entries();
    }
    loop.slot_count = static_cast<uint32_t>(own.slots.size());
  }

  void resolve_loop_test(ForLoop& loop, Place place) {
    FunctionScope function(place.function);
    Symbols inner(place.symbols, &function, place.symbols->level() + 1);
    NameCollector names(inner);
    names.collect_parameters(*loop.filter_target);
    names.collect(*loop.test);
    const Place inside{&inner, &function, false};
    resolve(*loop.filter_target, inside);
    resolve(*loop.test, inside);
    loop.filter_scope = inner.entries();
    loop.filter_slot_count = static_cast<uint32_t>(function.slots.size());
  }

  void fail_if_loop_is_stored(const Stmt& statement) {
    const auto fail_if_stored = [](const ExprPtr& target, const auto& self) -> void {
      if (target->stores && target->name == "loop") {
        fail_at(target->line, "cannot assign to the special variable 'loop' within a for block");
      }
      for (const ExprPtr& item : target->items) {
        if (item) self(item, self);
      }
    };
    if (statement.loop) fail_if_stored(statement.loop->target, fail_if_stored);
    for (const ExprPtr& target : statement.targets) {
      if (statement.kind != StmtKind::kRefused && statement.kind != StmtKind::kWith) {
        fail_if_stored(target, fail_if_stored);
      }
    }
    const auto visit = [&](const Body& body) {
      for (const auto& inner : body) fail_if_loop_is_stored(*inner);
    };
    visit(statement.body);
    for (const Branch& branch : statement.branches) visit(branch.body);
    if (statement.loop) visit(statement.loop->else_body);
    if (statement.macro) visit(statement.macro->body);
  }
};

}  // namespace

void resolve_variables(Program& program) { Resolver().run(program); }

}  // namespace kvikk::jinja
