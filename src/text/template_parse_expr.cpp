// Expressions, from the loosest binding to the tightest.

#include <algorithm>

#include "text/template_parser.h"

namespace kvikk::jinja {
namespace {

bool is_constant_name(std::string_view name) {
  constexpr std::string_view kNames[] = {"true", "false", "none", "True", "False", "None"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

const char* kind_name(ExprKind kind) {
  switch (kind) {
    case ExprKind::kConst:
      return "a constant";
    case ExprKind::kList:
      return "a list";
    case ExprKind::kDict:
      return "a dict";
    case ExprKind::kCall:
      return "a call";
    case ExprKind::kGetattr:
    case ExprKind::kGetitem:
      return "an item";
    default:
      return "an expression";
  }
}

}  // namespace

ExprPtr Parser::finish(ExprPtr node) {
  int below = 0;
  const auto look = [&](const ExprPtr& child) {
    if (child) below = std::max(below, child->depth);
  };
  for (const ExprPtr& item : node->items) look(item);
  if (node->args) {
    for (const ExprPtr& item : node->args->positional) look(item);
    for (const auto& [name, item] : node->args->keywords) look(item);
    look(node->args->star);
    look(node->args->double_star);
  }
  node->depth = below + 1;
  if (node->depth > kTemplateExpressionDepthMax) {
    throw_error(
        StatusCode::kExhausted, node->line,
        concat("an expression nests deeper than ", std::to_string(kTemplateExpressionDepthMax)));
  }
  return node;
}

ExprPtr Parser::make(ExprKind kind, int line, std::vector<ExprPtr> items) {
  auto node = std::make_unique<Expr>(kind, line);
  node->items = std::move(items);
  return finish(std::move(node));
}

ExprPtr Parser::make_binary(ExprKind kind, int line, ExprPtr left, ExprPtr right) {
  std::vector<ExprPtr> items;
  items.push_back(std::move(left));
  items.push_back(std::move(right));
  return make(kind, line, std::move(items));
}

ExprPtr Parser::parse_condition() {
  const Nesting nesting(*this);
  int line = current().line;
  ExprPtr node = parse_or();
  while (skip_name("if")) {
    std::vector<ExprPtr> items(3);
    items[1] = std::move(node);
    items[0] = parse_or();
    if (skip_name("else")) items[2] = parse_condition();
    node = make(ExprKind::kCond, line, std::move(items));
    line = current().line;
  }
  return node;
}

ExprPtr Parser::parse_or() {
  const int line = current().line;
  ExprPtr node = parse_and();
  while (skip_name("or")) node = make_binary(ExprKind::kOr, line, std::move(node), parse_and());
  return node;
}

ExprPtr Parser::parse_and() {
  const int line = current().line;
  ExprPtr node = parse_not();
  while (skip_name("and")) node = make_binary(ExprKind::kAnd, line, std::move(node), parse_not());
  return node;
}

ExprPtr Parser::parse_not() {
  if (!current().is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  const int line = advance().line;
  std::vector<ExprPtr> items;
  items.push_back(parse_not());
  return make(ExprKind::kNot, line, std::move(items));
}

ExprPtr Parser::parse_compare() {
  constexpr std::pair<std::string_view, CompareOp> kOperators[] = {
      {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<", CompareOp::kLt},
      {"<=", CompareOp::kLe}, {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
  const int line = current().line;
  std::vector<ExprPtr> items;
  std::vector<CompareOp> comparisons;
  items.push_back(parse_sum());
  for (;;) {
    const auto* found =
        std::find_if(std::begin(kOperators), std::end(kOperators),
                     [&](const auto& op) { return current().is_operator(op.first); });
    if (found != std::end(kOperators)) {
      advance();
      comparisons.push_back(found->second);
    } else if (skip_name("in")) {
      comparisons.push_back(CompareOp::kIn);
    } else if (current().is_name("not") && following().is_name("in")) {
      advance();
      advance();
      comparisons.push_back(CompareOp::kNotIn);
    } else {
      break;
    }
    items.push_back(parse_sum());
  }
  if (comparisons.empty()) return std::move(items[0]);
  ExprPtr node = make(ExprKind::kCompare, line, std::move(items));
  node->comparisons = std::move(comparisons);
  return node;
}

ExprPtr Parser::parse_sum() {
  const int line = current().line;
  ExprPtr node = parse_concat();
  while (current().is_operator("+") || current().is_operator("-")) {
    const Operator operation = advance().text == "+" ? Operator::kAdd : Operator::kSub;
    node = make_binary(ExprKind::kBinary, line, std::move(node), parse_concat());
    node->operation = operation;
  }
  return node;
}

ExprPtr Parser::parse_concat() {
  const int line = current().line;
  std::vector<ExprPtr> items;
  items.push_back(parse_product());
  while (skip_operator("~")) items.push_back(parse_product());
  if (items.size() == 1) return std::move(items[0]);
  return make(ExprKind::kConcat, line, std::move(items));
}

ExprPtr Parser::parse_product() {
  constexpr std::pair<std::string_view, Operator> kOperators[] = {{"*", Operator::kMul},
                                                                  {"/", Operator::kDiv},
                                                                  {"//", Operator::kFloorDiv},
                                                                  {"%", Operator::kMod}};
  const int line = current().line;
  ExprPtr node = parse_power();
  for (;;) {
    const auto* found =
        std::find_if(std::begin(kOperators), std::end(kOperators),
                     [&](const auto& op) { return current().is_operator(op.first); });
    if (found == std::end(kOperators)) return node;
    advance();
    node = make_binary(ExprKind::kBinary, line, std::move(node), parse_power());
    node->operation = found->second;
  }
}

ExprPtr Parser::parse_power() {
  const int line = current().line;
  ExprPtr node = parse_unary(true);
  while (skip_operator("**")) {
    node = make_binary(ExprKind::kBinary, line, std::move(node), parse_unary(true));
    node->operation = Operator::kPow;
  }
  return node;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  const Token& token = current();
  ExprPtr node;
  if (token.is_operator("-") || token.is_operator("+")) {
    const Nesting nesting(*this);
    const ExprKind kind = token.text == "-" ? ExprKind::kNegative : ExprKind::kPositive;
    advance();
    std::vector<ExprPtr> items;
    items.push_back(parse_unary(false));
    node = make(kind, token.line, std::move(items));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr Parser::parse_name(bool with_namespace) {
  const Token& token = advance();
  if (is_constant_name(token.text)) {
    ExprPtr node = make(ExprKind::kConst, token.line);
    const char first = static_cast<char>(token.text[0] | 0x20);
    node->value = first == 'n' ? Value::none() : Value::boolean(first == 't');
    return node;
  }
  const bool is_item = with_namespace && skip_operator(".");
  ExprPtr node = make(is_item ? ExprKind::kNamespaceItem : ExprKind::kName, token.line);
  node->name = token.text;
  if (is_item) {
    node->text = expect(TokenKind::kName, "name").text;
    node->value = Value(Kind::kString, new String(nullptr, node->text, false));
  }
  return node;
}

ExprPtr Parser::parse_primary(bool with_namespace) {
  const Token& token = current();
  ExprPtr node;
  switch (token.kind) {
    case TokenKind::kName:
      return parse_name(with_namespace);
    case TokenKind::kString: {
      std::string text;
      while (current().is(TokenKind::kString)) text += advance().text;
      node = make(ExprKind::kConst, token.line);
      node->value = Value(Kind::kString, new String(nullptr, std::move(text), false));
      return node;
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      advance();
      node = make(ExprKind::kConst, token.line);
      node->value =
          token.is(TokenKind::kInteger) ? Value::integer(token.integer) : Value::real(token.real);
      return node;
    default:
      break;
  }
  if (skip_operator("(")) {
    node = parse_tuple(TupleKind::kBracketed);
    expect_operator(")");
    return node;
  }
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  fail_expected("an expression");
}

ExprPtr Parser::parse_tuple(TupleKind kind) {
  const int line = current().line;
  const auto at_end = [&] {
    return current().is(TokenKind::kVariableEnd) || current().is(TokenKind::kBlockEnd) ||
           current().is_operator(")");
  };
  const auto parse_item = [&] {
    switch (kind) {
      case TupleKind::kTarget:
        return parse_primary(false);
      case TupleKind::kTargetWithNamespace:
        return parse_primary(true);
      case TupleKind::kNoCondition:
        return parse_or();
      default:
        return parse_expression();
    }
  };
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect_operator(",");
    if (at_end()) break;
    items.push_back(parse_item());
    if (!current().is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (kind != TupleKind::kBracketed) fail_expected("an expression");
  }
  return make(ExprKind::kTuple, line, std::move(items));
}

ExprPtr Parser::parse_list() {
  const int line = advance().line;
  std::vector<ExprPtr> items;
  while (!current().is_operator("]")) {
    if (!items.empty()) expect_operator(",");
    if (current().is_operator("]")) break;
    items.push_back(parse_expression());
  }
  expect_operator("]");
  return make(ExprKind::kList, line, std::move(items));
}

ExprPtr Parser::parse_dict() {
  const int line = advance().line;
  std::vector<ExprPtr> items;
  while (!current().is_operator("}")) {
    if (!items.empty()) expect_operator(",");
    if (current().is_operator("}")) break;
    items.push_back(parse_expression());
    expect_operator(":");
    items.push_back(parse_expression());
  }
  expect_operator("}");
  return make(ExprKind::kDict, line, std::move(items));
}

ExprPtr Parser::parse_postfix(ExprPtr node) {
  for (;;) {
    if (current().is_operator(".") || current().is_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (current().is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr node) {
  for (;;) {
    if (current().is_operator("|")) {
      node = parse_filters(std::move(node), false);
    } else if (current().is_name("is")) {
      node = parse_test(std::move(node));
    } else if (current().is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  const Token& token = advance();
  if (token.text == ".") {
    const Token& attribute = advance();
    if (attribute.is(TokenKind::kName)) {
      std::vector<ExprPtr> items;
      items.push_back(std::move(object));
      ExprPtr node = make(ExprKind::kGetattr, token.line, std::move(items));
      node->name = attribute.text;
      return node;
    }
    if (!attribute.is(TokenKind::kInteger)) fail_here("expected a name or number after '.'");
    ExprPtr index = make(ExprKind::kConst, attribute.line);
    index->value = Value::integer(attribute.integer);
    return make_binary(ExprKind::kGetitem, token.line, std::move(object), std::move(index));
  }
  std::vector<ExprPtr> arguments;
  while (!current().is_operator("]")) {
    if (!arguments.empty()) expect_operator(",");
    arguments.push_back(parse_subscript_argument());
  }
  advance();
  const auto is_slice = [](const Expr& argument) {
    return argument.kind == ExprKind::kSlice && !argument.items[0];
  };
  if (arguments.size() == 1 && is_slice(*arguments[0])) {
    arguments[0]->items[0] = std::move(object);
    return finish(std::move(arguments[0]));
  }
  ExprPtr key;
  if (arguments.size() == 1) {
    key = std::move(arguments[0]);
  } else {
    for (const ExprPtr& argument : arguments) {
      if (is_slice(*argument)) fail_here("a slice within a tuple is no subscript");
    }
    key = make(ExprKind::kTuple, token.line, std::move(arguments));
  }
  return make_binary(ExprKind::kGetitem, token.line, std::move(object), std::move(key));
}

// One of the comma-separated things inside [ ]; a slice still without the object that it slices.
ExprPtr Parser::parse_subscript_argument() {
  const int line = current().line;
  std::vector<ExprPtr> items(4);
  if (!current().is_operator(":")) {
    items[1] = parse_expression();
    if (!current().is_operator(":")) return std::move(items[1]);
  }
  advance();
  const auto at_end = [&] { return current().is_operator("]") || current().is_operator(","); };
  if (!current().is_operator(":") && !at_end()) items[2] = parse_expression();
  if (skip_operator(":") && !at_end()) items[3] = parse_expression();
  return make(ExprKind::kSlice, line, std::move(items));
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  auto node = std::make_unique<Expr>(ExprKind::kCall, current().line);
  node->items.push_back(std::move(callee));
  node->args = parse_arguments();
  return finish(std::move(node));
}

std::unique_ptr<CallArgs> Parser::parse_arguments() {
  auto args = std::make_unique<CallArgs>();
  const auto ensure = [&](bool fits) {
    if (!fits) fail_here("invalid order of arguments in a call");
  };
  expect_operator("(");
  for (bool first = true; !current().is_operator(")"); first = false) {
    if (!first) {
      expect_operator(",");
      if (current().is_operator(")")) break;
    }
    if (skip_operator("*")) {
      ensure(!args->star && !args->double_star);
      args->star = parse_expression();
    } else if (skip_operator("**")) {
      ensure(!args->double_star);
      args->double_star = parse_expression();
    } else if (current().is(TokenKind::kName) && following().is_operator("=")) {
      ensure(!args->double_star);
      const std::string name = advance().text;
      advance();
      for (const auto& keyword : args->keywords) {
        if (keyword.first == name) fail_here("keyword argument '", name, "' comes twice");
      }
      args->keywords.emplace_back(name, parse_expression());
    } else {
      ensure(!args->star && !args->double_star && args->keywords.empty());
      args->positional.push_back(parse_expression());
    }
  }
  expect_operator(")");
  return args;
}

std::string Parser::parse_dotted_name() {
  std::string name = expect(TokenKind::kName, "name").text;
  while (skip_operator(".")) name += concat(".", expect(TokenKind::kName, "name").text);
  return name;
}

// `started`: the first filter stands without a "|" before it.
ExprPtr Parser::parse_filters(ExprPtr node, bool started) {
  while (started || current().is_operator("|")) {
    if (!started) advance();
    started = false;
    auto filter = std::make_unique<Expr>(ExprKind::kFilter, current().line);
    filter->name = parse_dotted_name();
    filter->builtin = find_filter(filter->name);
    filter->args = current().is_operator("(") ? parse_arguments() : std::make_unique<CallArgs>();
    filter->items.push_back(std::move(node));
    node = finish(std::move(filter));
  }
  return node;
}

ExprPtr Parser::parse_test(ExprPtr value) {
  auto test = std::make_unique<Expr>(ExprKind::kTest, advance().line);
  const bool negated = skip_name("not");
  test->name = parse_dotted_name();
  test->builtin = find_test(test->name);
  test->args = std::make_unique<CallArgs>();
  const Token& next = current();
  const bool may_be_argument = next.is(TokenKind::kName) || next.is(TokenKind::kString) ||
                               next.is(TokenKind::kInteger) || next.is(TokenKind::kFloat) ||
                               next.is_operator("[") || next.is_operator("{");
  if (next.is_operator("(")) {
    test->args = parse_arguments();
  } else if (may_be_argument && !next.is_name("else") && !next.is_name("or") &&
             !next.is_name("and")) {
    if (next.is_name("is")) fail_here("tests cannot be chained with 'is'");
    test->args->positional.push_back(parse_postfix(parse_primary()));
  }
  const int line = test->line;
  test->items.push_back(std::move(value));
  ExprPtr node = finish(std::move(test));
  if (!negated) return node;
  std::vector<ExprPtr> items;
  items.push_back(std::move(node));
  return make(ExprKind::kNot, line, std::move(items));
}

ExprPtr Parser::parse_target(bool with_namespace) {
  ExprPtr target =
      parse_tuple(with_namespace ? TupleKind::kTargetWithNamespace : TupleKind::kTarget);
  mark_stored(*target);
  return target;
}

void Parser::mark_stored(Expr& target) {
  switch (target.kind) {
    case ExprKind::kName:
      if (is_constant_name(target.name)) fail_here("cannot assign to '", target.name, "'");
      target.stores = true;
      return;
    case ExprKind::kNamespaceItem:
      return;
    case ExprKind::kTuple:
      for (const ExprPtr& item : target.items) mark_stored(*item);
      return;
    default:
      fail_here("cannot assign to ", kind_name(target.kind));
  }
}

}  // namespace kvikk::jinja
