// Statements.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/template_interp.h"

namespace kvikk::jinja {
namespace {

// The items of a for block that pass its condition, found one by one while the loop runs.
class FilteredItems final : public Iterator {
 public:
  FilteredItems(Interpreter& vm, const ForLoop& loop, const Ref<Frame>& around,
                Ref<Iterator> source)
      : Iterator(&vm.budget()),
        loop_(loop),
        frame_(new Frame(&vm.budget(), loop.filter_slot_count, around)),
        source_(std::move(source)) {}

  bool next(Interpreter& vm, Value& item) override {
    if (!entered_) vm.enter(loop_.filter_scope, *frame_);
    entered_ = true;
    while (read(vm, *source_, item)) {
      if (vm.passes_filter(loop_, *frame_, item)) return true;
    }
    return false;
  }

 private:
  const ForLoop& loop_;
  Ref<Frame> frame_;
  Ref<Iterator> source_;
  bool entered_ = false;
};

}  // namespace

Interpreter::Interpreter(const Program& program, const TemplateOptions& options)
    : program_(program), now_(options.now), budget_(options.limits) {}

std::string Interpreter::render(const nlohmann::ordered_json& variables) {
  variables_ = import_variables(*this, variables);
  const Ref<Frame> frame(new Frame(&budget_, program_.slot_count, {}));
  Text out(budget_);
  enter(program_.scope, *frame);
  run(program_.body, *frame, out);
  if (out.size() > budget_.limits().output_bytes_max) {
    fail_limit("output_bytes_max", budget_.limits().output_bytes_max);
  }
  return out.take();
}

void Interpreter::too_deep() const {
  fail_limit("depth_max", static_cast<uint64_t>(budget_.limits().depth_max));
}

void Interpreter::enter(const Scope& scope, Frame& frame) {
  for (const ScopeEntry& entry : scope) {
    switch (entry.kind) {
      case ScopeEntry::Kind::kParameter:
        break;
      case ScopeEntry::Kind::kUnset:
        frame.slots[entry.slot] = Value();
        break;
      case ScopeEntry::Kind::kAlias:
        frame.slots[entry.slot] = slot(entry.source, frame);
        break;
      case ScopeEntry::Kind::kResolve:
        frame.slots[entry.slot] = resolve(entry.name);
        break;
    }
  }
}

void Interpreter::leave(const Scope& scope, Frame& frame) {
  for (const ScopeEntry& entry : scope) frame.slots[entry.slot] = Value();
}

Interpreter::Flow Interpreter::run(const Body& body, Frame& frame, Text& out) {
  const Depth depth(*this);
  for (const auto& statement : body) {
    const Flow flow = run(*statement, frame, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const Stmt& statement, Frame& frame, Text& out) {
  budget_.step();
  try {
    switch (statement.kind) {
      case StmtKind::kOutput:
        for (const ExprPtr& expr : statement.exprs) append_str(*this, out, eval(*expr, frame));
        return Flow::kNext;
      case StmtKind::kIf:
        return run_if(statement, frame, out);
      case StmtKind::kFor: {
        const Value over = eval(*statement.loop->iterable, frame);
        const Ref<Frame> around(&frame);
        if (!statement.loop->recursive) return run_for(statement, frame, out, around, over, 0);
        out.append(render_recursive(statement, around, over, 0));
        return Flow::kNext;
      }
      case StmtKind::kMacro:
        slot(statement.variable, frame) =
            Value(Kind::kMacro, new Macro(&budget_, statement.macro.get(), Ref<Frame>(&frame)));
        return Flow::kNext;
      case StmtKind::kCallBlock:
      case StmtKind::kGeneration:
        run_call_block(statement, frame, out);
        return Flow::kNext;
      case StmtKind::kFilterBlock:
        return run_filter_block(statement, frame, out);
      case StmtKind::kWith:
        return run_with(statement, frame, out);
      case StmtKind::kSet:
        run_set(statement, frame);
        return Flow::kNext;
      case StmtKind::kSetBlock:
        return run_set_block(statement, frame);
      case StmtKind::kBreak:
        return Flow::kBreak;
      case StmtKind::kContinue:
        return Flow::kContinue;
      case StmtKind::kRefused:
        fail_unsupported("'", statement.name, "' is not possible: a chat template stands alone");
    }
  } catch (Error& error) {
    if (error.line == 0) error.line = statement.line;
    throw;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_if(const Stmt& statement, Frame& frame, Text& out) {
  for (const Branch& branch : statement.branches) {
    if (!branch.test || truthy(*this, eval(*branch.test, frame))) {
      return run(branch.body, frame, out);
    }
  }
  return Flow::kNext;
}

// `frame` holds the loop's variables, `around` is where its condition is at home.
Interpreter::Flow Interpreter::run_for(const Stmt& statement, Frame& frame, Text& out,
                                       Ref<Frame> around, const Value& over, int64_t depth0) {
  const ForLoop& loop = *statement.loop;
  Ref<Iterator> source = iterate(*this, over);
  Value iterable = over;
  if (loop.test) {
    source = Ref<Iterator>(new FilteredItems(*this, loop, around, std::move(source)));
    iterable = Value(Kind::kIterator, source.get());
  }
  Ref<Loop> extended;
  if (loop.extended) {
    extended = Ref<Loop>(new Loop(&budget_, iterable, source, depth0));
    if (loop.recursive) {
      extended->recursive = &statement;
      extended->closure = around;
    }
    frame.slots[loop.loop_slot] = Value(Kind::kLoop, extended.get());
  }
  const bool ran_through = run_loop_body(statement, frame, out, *source, extended.get());
  leave(statement.scope, frame);
  if (!loop.has_else || ran_through) return Flow::kNext;
  enter(loop.else_scope, frame);
  const Flow flow = run(loop.else_body, frame, out);
  leave(loop.else_scope, frame);
  return flow;
}

// Whether some iteration came to the end of the body. The else block depends on that, so a loop
// whose every iteration continues or breaks runs it, as in Jinja2.
bool Interpreter::run_loop_body(const Stmt& statement, Frame& frame, Text& out, Iterator& source,
                                Loop* extended) {
  bool ran_through = false;
  const ForLoop& loop = *statement.loop;
  for (Value item;;) {
    budget_.step();
    if (extended != nullptr) {
      if (!extended->advance(*this)) break;
      item = extended->current;
      frame.slots[loop.loop_slot] = Value(Kind::kLoop, extended);
    } else if (!read(*this, source, item)) {
      break;
    }
    assign(*loop.target, frame, std::move(item));
    enter(statement.scope, frame);
    const Flow flow = run(statement.body, frame, out);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNext) ran_through = true;
  }
  return ran_through;
}

bool Interpreter::passes_filter(const ForLoop& loop, Frame& frame, Value& item) {
  budget_.step();
  assign(*loop.filter_target, frame, item);
  if (!truthy(*this, eval(*loop.test, frame))) return false;
  if (loop.filter_target->kind == ExprKind::kTuple) item = eval(*loop.filter_target, frame);
  return true;
}

std::string Interpreter::render_recursive(const Stmt& statement, const Ref<Frame>& closure,
                                          const Value& over, int64_t depth0) {
  const Depth depth(*this);
  const Ref<Frame> frame(new Frame(&budget_, statement.loop->slot_count, closure));
  Text out(budget_);
  run_for(statement, *frame, out, closure, over, depth0);
  return out.take();
}

Interpreter::Flow Interpreter::run_with(const Stmt& statement, Frame& frame, Text& out) {
  enter(statement.scope, frame);
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    assign(*statement.targets[i], frame, eval(*statement.exprs[i], frame));
  }
  const Flow flow = run(statement.body, frame, out);
  if (flow == Flow::kNext) leave(statement.scope, frame);
  return flow;
}

Interpreter::Flow Interpreter::run_filter_block(const Stmt& statement, Frame& frame, Text& out) {
  enter(statement.scope, frame);
  Text body(budget_);
  const Flow flow = run(statement.body, frame, body);
  if (flow != Flow::kNext) return flow;  // what was written so far is lost, as in Jinja2
  const Value outer = std::exchange(filter_block_text_, make_string(*this, body.take()));
  append_str(*this, out, eval(*statement.exprs[0], frame));
  filter_block_text_ = outer;
  leave(statement.scope, frame);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_set_block(const Stmt& statement, Frame& frame) {
  enter(statement.scope, frame);
  Text body(budget_);
  const Flow flow = run(statement.body, frame, body);
  if (flow != Flow::kNext) return flow;
  Value value = make_string(*this, body.take());
  if (!statement.exprs.empty()) {
    const Value outer = std::exchange(filter_block_text_, value);
    value = eval(*statement.exprs[0], frame);
    filter_block_text_ = outer;
  }
  check_namespaces(*statement.targets[0], frame);
  assign(*statement.targets[0], frame, std::move(value));
  leave(statement.scope, frame);
  return Flow::kNext;
}

void Interpreter::run_set(const Stmt& statement, Frame& frame) {
  check_namespaces(*statement.targets[0], frame);
  assign(*statement.targets[0], frame, eval(*statement.exprs[0], frame));
}

// Attributes can be set on namespaces only; that is checked before the value is computed.
void Interpreter::check_namespaces(const Expr& target, Frame& frame) {
  if (target.kind == ExprKind::kNamespaceItem &&
      !slot(target.variable, frame).is(Kind::kNamespace)) {
    fail("cannot assign attribute '", target.text, "': '", target.name, "' is no namespace");
  }
  for (const ExprPtr& item : target.items) check_namespaces(*item, frame);
}

void Interpreter::assign(const Expr& target, Frame& frame, Value value) {
  if (target.kind == ExprKind::kName) {
    slot(target.variable, frame) = std::move(value);
    return;
  }
  if (target.kind == ExprKind::kNamespaceItem) {
    const Value holder = slot(target.variable, frame);  // stays alive meanwhile
    if (!holder.is(Kind::kNamespace)) fail("cannot assign attribute on a non-namespace object");
    holder.as<Namespace>().set(*this, target.value, std::move(value));
    return;
  }
  const Depth depth(*this);
  const Ref<Iterator> source = iterate(*this, value);
  std::vector<Value> items;
  for (Value item; items.size() <= target.items.size() && read(*this, *source, item);) {
    items.push_back(std::move(item));
  }
  if (items.size() != target.items.size()) {
    fail((items.size() > target.items.size() ? "too many values to unpack (expected "
                                             : "not enough values to unpack (expected "),
         std::to_string(target.items.size()), ")");
  }
  for (size_t i = 0; i < items.size(); ++i) {
    assign(*target.items[i], frame, std::move(items[i]));
  }
}

void Interpreter::run_call_block(const Stmt& statement, Frame& frame, Text& out) {
  const Value caller(Kind::kMacro, new Macro(&budget_, statement.macro.get(), Ref<Frame>(&frame)));
  if (statement.kind == StmtKind::kGeneration) {
    Call call{"generation"};
    out.append(call_macro(caller.as<Macro>(), call));
  } else {
    append_str(*this, out, eval_call(*statement.exprs[0], frame, &caller));
  }
}

std::string Interpreter::call_macro(const Macro& macro, Call& call) {
  const Depth depth(*this);
  const MacroBody& body = *macro.body;
  const Ref<Frame> frame(new Frame(&budget_, body.slot_count, macro.closure));
  bind_macro(body, call, *frame);
  enter(body.scope, *frame);
  for (const auto& parameter : body.parameters) {
    if (!frame->slots[parameter.slot].is_missing()) continue;
    frame->slots[parameter.slot] =
        parameter.default_value
            ? eval(*parameter.default_value, *frame)
            : make_undefined(*this, concat("parameter '", parameter.name, "' was not provided"));
  }
  Text out(budget_);
  run(body.body, *frame, out);
  return out.take();
}

void Interpreter::bind_macro(const MacroBody& body, Call& call, Frame& frame) {
  const std::string name =
      body.anonymous ? "the block of a call" : concat("macro '", body.name, "'");
  const auto take_keyword = [&](const std::string& key) {
    const auto found = std::find_if(call.keywords.begin(), call.keywords.end(),
                                    [&](const auto& keyword) { return keyword.first == key; });
    if (found == call.keywords.end()) return Value();
    Value value = std::move(found->second);
    call.keywords.erase(found);
    return value;
  };
  const size_t positional = std::min(call.args.size(), body.parameters.size());
  // `caller` counts as passed where it is a parameter that a keyword or all arguments fill.
  bool found_caller = positional == body.parameters.size() && body.explicit_caller;
  for (size_t i = 0; i < body.parameters.size(); ++i) {
    const auto& parameter = body.parameters[i];
    if (i >= positional && parameter.name == "caller") found_caller = true;
    frame.slots[parameter.slot] = i < positional ? call.args[i] : take_keyword(parameter.name);
  }
  if (body.takes_caller && !found_caller) {
    if (body.explicit_caller) fail(name, " takes no second value for 'caller'");
    Value caller = take_keyword("caller");
    if (caller.is_missing() || caller.is_none()) {
      caller = make_undefined(*this, "no caller defined");
    }
    frame.slots[body.caller_slot] = std::move(caller);
  }
  if (body.takes_keywords) {
    DictBuilder keywords(*this);
    for (auto& [key, value] : call.keywords) keywords.set(make_string(*this, key), value);
    frame.slots[body.keywords_slot] = keywords.finish();
  } else if (!call.keywords.empty()) {
    fail(name, " takes no keyword argument '", call.keywords.front().first, "'");
  }
  if (body.takes_varargs) {
    frame.slots[body.varargs_slot] = make_tuple(
        *this, {call.args.begin() + static_cast<ptrdiff_t>(positional), call.args.end()});
  } else if (call.args.size() > body.parameters.size()) {
    fail(name, " takes not more than ", std::to_string(body.parameters.size()), " argument(s)");
  }
}

}  // namespace kvikk::jinja
