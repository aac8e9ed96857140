// Expressions and calls.

#include <algorithm>

#include "text/template_interp.h"

namespace kvikk::jinja {

Budget& budget_of(Interpreter& vm) { return vm.budget(); }

Value& Interpreter::slot(const Variable& variable, Frame& frame) {
  Frame* in = &frame;
  for (uint32_t hop = 0; hop < variable.hops; ++hop) in = in->parent.get();
  return in->slots[variable.slot];
}

// The caller's variables come before what is built in.
Value Interpreter::resolve(std::string_view name) {
  const Value* found = variables_.as<Dict>().find(name);
  return found != nullptr ? *found : find_global(*this, name);
}

Value Interpreter::eval(const Expr& expr, Frame& frame) {
  const Depth depth(*this);
  budget_.step();
  try {
    return eval_node(expr, frame);
  } catch (Error& error) {
    if (error.line == 0) error.line = expr.line;
    throw;
  }
}

Value Interpreter::eval_node(const Expr& expr, Frame& frame) {
  const auto operand = [&](size_t i) { return eval(*expr.items[i], frame); };
  switch (expr.kind) {
    case ExprKind::kData:
    case ExprKind::kConst:
      return expr.value;
    case ExprKind::kName:
      return eval_name(expr, frame);
    case ExprKind::kNamespaceItem:
      break;  // only a target
    case ExprKind::kList:
    case ExprKind::kTuple:
      return eval_list(expr, frame);
    case ExprKind::kDict:
      return eval_dict(expr, frame);
    case ExprKind::kGetattr:
      return get_attribute(*this, operand(0), expr.name);
    case ExprKind::kGetitem: {
      const Value object = operand(0);
      return get_item(*this, object, operand(1));
    }
    case ExprKind::kSlice: {
      const Value object = operand(0);
      const Value start = eval_bound(expr.items[1], frame);
      const Value stop = eval_bound(expr.items[2], frame);
      return get_slice(*this, object, start, stop, eval_bound(expr.items[3], frame));
    }
    case ExprKind::kCall:
      return eval_call(expr, frame, nullptr);
    case ExprKind::kFilter:
    case ExprKind::kTest:
      return eval_filter_or_test(expr, frame);
    case ExprKind::kNot:
      return Value::boolean(!truthy(*this, operand(0)));
    case ExprKind::kNegative:
      return negate(*this, operand(0));
    case ExprKind::kPositive:
      return positive(*this, operand(0));
    case ExprKind::kBinary: {
      const Value left = operand(0);
      return calculate(*this, expr.operation, left, operand(1));
    }
    case ExprKind::kAnd: {
      Value left = operand(0);
      return truthy(*this, left) ? operand(1) : left;
    }
    case ExprKind::kOr: {
      Value left = operand(0);
      return truthy(*this, left) ? left : operand(1);
    }
    case ExprKind::kConcat:
      return eval_concat(expr, frame);
    case ExprKind::kCompare:
      return eval_compare(expr, frame);
    case ExprKind::kCond:
      return eval_condition(expr, frame);
  }
  return Value::none();
}

Value Interpreter::eval_name(const Expr& expr, Frame& frame) {
  const Value& value = slot(expr.variable, frame);
  return value.is_missing() ? make_undefined_name(*this, expr.name) : value;
}

Value Interpreter::eval_list(const Expr& expr, Frame& frame) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) items.push_back(eval(*item, frame));
  return expr.kind == ExprKind::kList ? make_list(*this, std::move(items))
                                      : make_tuple(*this, std::move(items));
}

Value Interpreter::eval_dict(const Expr& expr, Frame& frame) {
  DictBuilder dict(*this);
  for (size_t i = 0; i < expr.items.size(); i += 2) {
    const Value key = eval(*expr.items[i], frame);
    dict.set(key, eval(*expr.items[i + 1], frame));
  }
  return dict.finish();
}

Value Interpreter::eval_concat(const Expr& expr, Frame& frame) {
  Text text(budget_);
  for (const ExprPtr& item : expr.items) append_str(*this, text, eval(*item, frame));
  return make_string(*this, text.take());
}

Value Interpreter::eval_compare(const Expr& expr, Frame& frame) {
  Value left = eval(*expr.items[0], frame);
  for (size_t i = 0; i < expr.comparisons.size(); ++i) {
    Value right = eval(*expr.items[i + 1], frame);
    if (!compare(*this, expr.comparisons[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::eval_condition(const Expr& expr, Frame& frame) {
  if (truthy(*this, eval(*expr.items[0], frame))) return eval(*expr.items[1], frame);
  if (expr.items[2]) return eval(*expr.items[2], frame);
  return make_undefined(*this, concat("the inline if-expression on line ",
                                      std::to_string(expr.line), " was false and has no else"));
}

Value Interpreter::eval_bound(const ExprPtr& bound, Frame& frame) {
  return bound ? eval(*bound, frame) : Value::none();
}

void Interpreter::eval_arguments(const CallArgs& args, Frame& frame, Call& call) {
  for (const ExprPtr& arg : args.positional) call.args.push_back(eval(*arg, frame));
  for (const auto& [name, arg] : args.keywords) {
    call.keywords.emplace_back(name, eval(*arg, frame));
  }
  if (args.star) {
    const Value more = eval(*args.star, frame);
    const Ref<Iterator> source = iterate(*this, more);
    for (Value item; read(*this, *source, item);) push_item(*this, call.args, std::move(item));
  }
  if (!args.double_star) return;
  const Value more = eval(*args.double_star, frame);
  if (!more.is(Kind::kDict)) fail("the value after ** must be a mapping");
  for (const Dict::Entry& entry : more.as<Dict>().entries) {
    if (!entry.key.is_string()) fail("keywords must be strings");
    const std::string& name = entry.key.as<String>().text;
    if (call.keyword(name) != nullptr) fail("keyword argument '", name, "' comes twice");
    budget_.step(call.keywords.size() / 8 + 1);
    call.keywords.emplace_back(name, entry.value);
  }
}

Value Interpreter::eval_call(const Expr& expr, Frame& frame, const Value* caller) {
  const Value callee = eval(*expr.items[0], frame);
  Call call{expr.items[0]->name};
  eval_arguments(*expr.args, frame, call);
  if (caller != nullptr) {
    if (call.keyword("caller") != nullptr) fail("'caller' is passed twice");
    call.keywords.emplace_back("caller", *caller);
  }
  return this->call(callee, call);
}

Value Interpreter::call(const Value& callee, Call& call) {
  switch (callee.kind()) {
    case Kind::kUndefined:
      fail_undefined(*this, callee);
    case Kind::kFunction:
      return callee.as<Function>().builtin(*this, call);
    case Kind::kMethod: {
      const Method& method = callee.as<Method>();
      call.self = method.self;
      call.name = method.name;
      return method.builtin(*this, call);
    }
    case Kind::kMacro:
      return make_string(*this, call_macro(callee.as<Macro>(), call));
    case Kind::kLoop: {
      const std::vector<Value> args = bind(call, {"iterable"}, 1);
      const Loop& loop = callee.as<Loop>();
      if (loop.recursive == nullptr) fail("only a loop marked 'recursive' can be called");
      return make_string(*this,
                         render_recursive(*loop.recursive, loop.closure, args[0], loop.depth0 + 1));
    }
    case Kind::kJoiner: {
      expect_positional(call, 0, 0);
      Joiner& joiner = callee.as<Joiner>();
      return std::exchange(joiner.used, true) ? joiner.separator : make_string(*this, "");
    }
    default:
      fail("'", type_name(callee), "' object is not callable");
  }
}

Value Interpreter::eval_filter_or_test(const Expr& expr, Frame& frame) {
  Call call{expr.name};
  call.args.reserve(expr.args->positional.size() + 1);
  call.args.push_back(expr.items[0] ? eval(*expr.items[0], frame) : filter_block_text_);
  eval_arguments(*expr.args, frame, call);
  if (expr.builtin == nullptr) {
    fail((expr.kind == ExprKind::kFilter ? "no filter named '" : "no test named '"), expr.name,
         "'");
  }
  return expr.builtin(*this, call);
}

const Value* Call::keyword(std::string_view key) const {
  for (const auto& [name_of, value] : keywords) {
    if (name_of == key) return &value;
  }
  return nullptr;
}

std::vector<Value> bind(const Call& call, std::initializer_list<const char*> names,
                        size_t required) {
  const auto who = [&] { return concat("'", call.name, "'"); };
  if (call.args.size() > names.size()) {
    fail(who(), " takes at most ", std::to_string(names.size()), " argument(s), ",
         std::to_string(call.args.size()), " given");
  }
  std::vector<Value> bound(call.args);
  bound.resize(names.size());
  for (const auto& [name, value] : call.keywords) {
    const auto* found = std::find(names.begin(), names.end(), std::string_view(name));
    if (found == names.end()) fail(who(), " takes no keyword argument '", name, "'");
    Value& place = bound[static_cast<size_t>(found - names.begin())];
    if (!place.is_missing()) fail(who(), " got the argument '", name, "' twice");
    place = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i].is_missing()) fail(who(), " lacks its argument '", names.begin()[i], "'");
  }
  return bound;
}

void expect_positional(const Call& call, size_t least, size_t most) {
  const auto who = [&] { return concat("'", call.name, "'"); };
  if (!call.keywords.empty()) fail(who(), " takes no keyword arguments");
  if (call.args.size() < least || call.args.size() > most) {
    fail(who(), " takes ", std::to_string(least),
         most == least ? "" : concat(" to ", std::to_string(most)), " argument(s), ",
         std::to_string(call.args.size()), " given");
  }
}

}  // namespace kvikk::jinja
