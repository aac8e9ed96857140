// Statements.

#include "text/template_parser.h"

#include <algorithm>

namespace kvikk::jinja {
namespace {

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kVariableBegin:
      return "begin of print statement";
    case TokenKind::kVariableEnd:
      return "end of print statement";
    case TokenKind::kData:
      return "template data / text";
    case TokenKind::kString:
      return "string";
    case TokenKind::kEnd:
      return "end of template";
    default:
      return token.text;
  }
}

// A loop's target once more, for the frame of the loop's condition.
ExprPtr clone_target(const Expr& target) {
  auto copy = std::make_unique<Expr>(target.kind, target.line);
  copy->name = target.name;
  copy->stores = target.stores;
  copy->depth = target.depth;
  for (const ExprPtr& item : target.items) copy->items.push_back(clone_target(*item));
  return copy;
}

}  // namespace

Program parse_program(const std::string& source) {
  Program program = Parser(tokenize(source)).parse();
  resolve_variables(program);
  return program;
}

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (parser_.nesting_ == kTemplateNestingMax) {
    throw_error(
        StatusCode::kExhausted, parser_.current().line,
        concat("brackets and blocks nest deeper than ", std::to_string(kTemplateNestingMax)));
  }
  ++parser_.nesting_;
}

const Token& Parser::advance() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  advance();
  return true;
}

bool Parser::skip_operator(std::string_view op) {
  if (!current().is_operator(op)) return false;
  advance();
  return true;
}

const Token& Parser::expect(TokenKind kind, std::string_view what) {
  if (!current().is(kind)) fail_expected(what);
  return advance();
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_expected(name);
}

void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail_expected(op);
}

void Parser::fail_expected(std::string_view what) const {
  fail_here("expected '", what, "', got '", describe(current()), "'");
}

Program Parser::parse() {
  Program program;
  program.body = parse_body({});
  return program;
}

Body Parser::parse_body(Names ends) {
  const Nesting nesting(*this);
  Body body;
  const auto output = [&](ExprPtr expr) {
    if (body.empty() || body.back()->kind != StmtKind::kOutput) {
      body.push_back(std::make_unique<Stmt>(StmtKind::kOutput, expr->line));
    }
    body.back()->exprs.push_back(std::move(expr));
  };
  while (!current().is(TokenKind::kEnd)) {
    if (current().is(TokenKind::kData)) {
      ExprPtr data = make(ExprKind::kData, current().line);
      data->value = Value(Kind::kString, new String(nullptr, advance().text, false));
      output(std::move(data));
    } else if (current().is(TokenKind::kVariableBegin)) {
      advance();
      output(parse_tuple(TupleKind::kFull));
      expect(TokenKind::kVariableEnd, "end of print statement");
    } else {
      expect(TokenKind::kBlockBegin, "begin of statement block");
      if (current().is(TokenKind::kName) &&
          std::find(ends.begin(), ends.end(), current().text) != ends.end()) {
        return body;
      }
      body.push_back(parse_statement());
      expect(TokenKind::kBlockEnd, "end of statement block");
    }
  }
  if (ends.size() != 0) {
    fail_here("unexpected end of template; the block '", open_tags_.back(), "' is not closed");
  }
  return body;
}

Body Parser::parse_block(Names ends) {
  skip_operator(":");
  expect(TokenKind::kBlockEnd, "end of statement block");
  return parse_body(ends);
}

std::unique_ptr<Stmt> Parser::parse_statement() {
  if (!current().is(TokenKind::kName)) fail_here("tag name expected");
  open_tags_.push_back(current().text);
  auto statement = parse_named_statement(current().text);
  open_tags_.pop_back();
  return statement;
}

std::unique_ptr<Stmt> Parser::parse_named_statement(const std::string& name) {
  if (name == "if") return parse_if();
  if (name == "for") return parse_for();
  if (name == "set") return parse_set();
  if (name == "macro") return parse_macro();
  if (name == "call") return parse_call_block();
  if (name == "filter") return parse_filter_block();
  if (name == "with") return parse_with();
  if (name == "print") return parse_print();
  if (name == "generation") return parse_generation();
  if (name == "break" || name == "continue") return parse_loop_control();
  if (name == "include" || name == "import" || name == "from" || name == "extends") {
    return parse_refused();
  }
  if (name == "block" || name == "autoescape") {
    throw_error(StatusCode::kUnsupported, current().line,
                concat("the tag '", name, "' is not supported"));
  }
  open_tags_.pop_back();
  fail_here(
      "unknown tag '", name, "'",
      open_tags_.empty() ? "" : concat("; the block '", open_tags_.back(), "' is still open"));
}

std::unique_ptr<Stmt> Parser::parse_if() {
  auto statement = std::make_unique<Stmt>(StmtKind::kIf, current().line);
  advance();
  for (;;) {
    Branch branch;
    branch.line = current().line;
    branch.test = parse_tuple(TupleKind::kNoCondition);
    branch.body = parse_block({"elif", "else", "endif"});
    statement->branches.push_back(std::move(branch));
    if (skip_name("elif")) continue;
    if (skip_name("else")) {
      Branch otherwise;
      otherwise.body = parse_block({"endif"});
      statement->branches.push_back(std::move(otherwise));
    }
    expect_name("endif");
    return statement;
  }
}

std::unique_ptr<Stmt> Parser::parse_for() {
  auto statement = std::make_unique<Stmt>(StmtKind::kFor, current().line);
  advance();
  statement->loop = std::make_unique<ForLoop>();
  ForLoop& loop = *statement->loop;
  loop.target = parse_target(false);
  expect_name("in");
  loop.iterable = parse_tuple(TupleKind::kNoCondition);
  if (skip_name("if")) {
    loop.test = parse_expression();
    loop.filter_target = clone_target(*loop.target);
  }
  loop.recursive = skip_name("recursive");
  ++loops_;
  statement->body = parse_block({"endfor", "else"});
  --loops_;
  if (skip_name("else")) {
    loop.has_else = true;
    const int outer = loops_;
    if (loop.recursive) loops_ = 0;  // the whole loop is a function of its own
    loop.else_body = parse_block({"endfor"});
    loops_ = outer;
  }
  expect_name("endfor");
  return statement;
}

std::unique_ptr<Stmt> Parser::parse_set() {
  auto statement = std::make_unique<Stmt>(StmtKind::kSet, current().line);
  advance();
  statement->targets.push_back(parse_target(true));
  if (skip_operator("=")) {
    statement->exprs.push_back(parse_tuple(TupleKind::kFull));
    return statement;
  }
  statement->kind = StmtKind::kSetBlock;
  if (current().is_operator("|")) statement->exprs.push_back(parse_filters(nullptr, false));
  statement->body = parse_block({"endset"});
  expect_name("endset");
  return statement;
}

void Parser::parse_signature(MacroBody& macro) {
  expect_operator("(");
  while (!current().is_operator(")")) {
    if (!macro.parameters.empty()) expect_operator(",");
    MacroBody::Parameter parameter;
    const Token& token = expect(TokenKind::kName, "name");
    parameter.name = token.text;
    parameter.line = token.line;
    const ExprPtr name = make(ExprKind::kName, token.line);
    name->name = token.text;
    mark_stored(*name);
    for (const MacroBody::Parameter& other : macro.parameters) {
      if (other.name == parameter.name) fail_here("parameter '", other.name, "' comes twice");
    }
    if (skip_operator("=")) {
      parameter.default_value = parse_expression();
    } else if (!macro.parameters.empty() && macro.parameters.back().default_value) {
      fail_here("a parameter without a default follows one with a default");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  expect_operator(")");
}

Body Parser::parse_macro_body(std::string_view end) {
  const int outer = std::exchange(loops_, 0);
  Body body = parse_block({end});
  loops_ = outer;
  expect_name(end);
  return body;
}

std::unique_ptr<Stmt> Parser::parse_macro() {
  auto statement = std::make_unique<Stmt>(StmtKind::kMacro, current().line);
  advance();
  statement->macro = std::make_unique<MacroBody>();
  statement->name = expect(TokenKind::kName, "name").text;
  const ExprPtr target = make(ExprKind::kName, statement->line);
  target->name = statement->name;
  mark_stored(*target);
  statement->macro->name = statement->name;
  parse_signature(*statement->macro);
  statement->macro->body = parse_macro_body("endmacro");
  return statement;
}

std::unique_ptr<Stmt> Parser::parse_call_block() {
  auto statement = std::make_unique<Stmt>(StmtKind::kCallBlock, current().line);
  advance();
  statement->macro = std::make_unique<MacroBody>();
  statement->macro->anonymous = true;
  if (current().is_operator("(")) parse_signature(*statement->macro);
  statement->exprs.push_back(parse_expression());
  if (statement->exprs[0]->kind != ExprKind::kCall) fail_here("expected a call");
  statement->macro->body = parse_macro_body("endcall");
  return statement;
}

std::unique_ptr<Stmt> Parser::parse_generation() {
  auto statement = std::make_unique<Stmt>(StmtKind::kGeneration, current().line);
  advance();
  statement->macro = std::make_unique<MacroBody>();
  statement->macro->anonymous = true;
  statement->macro->body = parse_macro_body("endgeneration");
  return statement;
}

std::unique_ptr<Stmt> Parser::parse_filter_block() {
  auto statement = std::make_unique<Stmt>(StmtKind::kFilterBlock, current().line);
  advance();
  statement->exprs.push_back(parse_filters(nullptr, true));
  statement->body = parse_block({"endfilter"});
  expect_name("endfilter");
  return statement;
}

std::unique_ptr<Stmt> Parser::parse_with() {
  auto statement = std::make_unique<Stmt>(StmtKind::kWith, current().line);
  advance();
  while (!current().is(TokenKind::kBlockEnd)) {
    if (!statement->targets.empty()) expect_operator(",");
    statement->targets.push_back(parse_target(false));
    expect_operator("=");
    statement->exprs.push_back(parse_expression());
  }
  statement->body = parse_block({"endwith"});
  expect_name("endwith");
  return statement;
}

std::unique_ptr<Stmt> Parser::parse_print() {
  auto statement = std::make_unique<Stmt>(StmtKind::kOutput, current().line);
  advance();
  while (!current().is(TokenKind::kBlockEnd)) {
    if (!statement->exprs.empty()) expect_operator(",");
    statement->exprs.push_back(parse_expression());
  }
  return statement;
}

std::unique_ptr<Stmt> Parser::parse_loop_control() {
  if (loops_ == 0) fail_here("'", current().text, "' outside of a loop");
  const bool is_break = current().text == "break";
  auto statement =
      std::make_unique<Stmt>(is_break ? StmtKind::kBreak : StmtKind::kContinue, current().line);
  advance();
  return statement;
}

void Parser::skip_context_clause() {
  if ((current().is_name("with") || current().is_name("without")) &&
      following().is_name("context")) {
    advance();
    advance();
  }
}

// Other templates: a template has no access to any, but may name one where it never gets to.
std::unique_ptr<Stmt> Parser::parse_refused() {
  auto statement = std::make_unique<Stmt>(StmtKind::kRefused, current().line);
  statement->name = advance().text;
  statement->exprs.push_back(parse_expression());
  const auto add_target = [&] {
    const Token& token = expect(TokenKind::kName, "name");
    ExprPtr target = make(ExprKind::kName, token.line);
    target->name = token.text;
    mark_stored(*target);
    statement->targets.push_back(std::move(target));
  };
  if (statement->name == "import") {
    expect_name("as");
    add_target();
    skip_context_clause();
  } else if (statement->name == "include") {
    if (current().is_name("ignore") && following().is_name("missing")) {
      advance();
      advance();
    }
    skip_context_clause();
  } else if (statement->name == "from") {
    expect_name("import");
    for (;;) {
      if (!statement->targets.empty()) expect_operator(",");
      const size_t before = at_;
      skip_context_clause();
      if (at_ != before) break;
      add_target();
      if (skip_name("as")) {
        statement->targets.pop_back();
        add_target();
      }
      skip_context_clause();
      if (!current().is_operator(",")) break;
    }
  }
  return statement;
}

}  // namespace kvikk::jinja
