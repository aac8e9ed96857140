#pragma once
// Recursive descent over the tokens of a template, with Jinja's grammar: the order of precedence,
// where tuples may stand without brackets, what a test takes as its argument. Statements are in
// template_parser.cpp, expressions in template_parse_expr.cpp.

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/template_ast.h"
#include "text/template_lexer.h"

namespace kvikk::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Program parse();

 private:
  using Names = std::initializer_list<std::string_view>;

  // Counts what stands within each other; the limit keeps the parser's own stack small.
  class Nesting {
   public:
    explicit Nesting(Parser& parser);
    ~Nesting() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& advance();
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view op);
  const Token& expect(TokenKind kind, std::string_view what);
  void expect_name(std::string_view name);
  void expect_operator(std::string_view op);
  template <class... Parts>
  [[noreturn]] void fail_here(const Parts&... parts) const {
    fail_at(current().line, parts...);
  }
  [[noreturn]] void fail_expected(std::string_view what) const;

  // Statements.
  Body parse_body(Names ends);   // up to, but not over, the tag that starts with one of `ends`
  Body parse_block(Names ends);  // the rest of the opening tag, then the body
  void parse_end(std::string_view name);
  std::unique_ptr<Stmt> parse_statement();
  std::unique_ptr<Stmt> parse_named_statement(const std::string& name);
  std::unique_ptr<Stmt> parse_if();
  std::unique_ptr<Stmt> parse_for();
  std::unique_ptr<Stmt> parse_set();
  std::unique_ptr<Stmt> parse_macro();
  std::unique_ptr<Stmt> parse_call_block();
  std::unique_ptr<Stmt> parse_generation();
  std::unique_ptr<Stmt> parse_filter_block();
  std::unique_ptr<Stmt> parse_with();
  std::unique_ptr<Stmt> parse_print();
  std::unique_ptr<Stmt> parse_loop_control();
  std::unique_ptr<Stmt> parse_refused();
  void skip_context_clause();
  void parse_signature(MacroBody& macro);
  Body parse_macro_body(std::string_view end);

  // Expressions.
  enum class TupleKind { kFull, kNoCondition, kBracketed, kTarget, kTargetWithNamespace };
  ExprPtr parse_expression() { return parse_condition(); }
  ExprPtr parse_condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter);
  ExprPtr parse_primary(bool with_namespace = false);
  ExprPtr parse_name(bool with_namespace);
  ExprPtr parse_tuple(TupleKind kind);
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters_and_tests(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_subscript_argument();
  ExprPtr parse_call(ExprPtr node);
  std::unique_ptr<CallArgs> parse_arguments();
  ExprPtr parse_filters(ExprPtr node, bool started);
  ExprPtr parse_test(ExprPtr node);
  std::string parse_dotted_name();
  ExprPtr parse_target(bool with_namespace);
  void mark_stored(Expr& target);

  ExprPtr make(ExprKind kind, int line, std::vector<ExprPtr> items = {});
  ExprPtr make_binary(ExprKind kind, int line, ExprPtr left, ExprPtr right);
  ExprPtr finish(ExprPtr node);  // computes the depth, enforces the limit

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  // for blocks around this place, inside the innermost macro
  std::vector<std::string> open_tags_;
};

}  // namespace kvikk::jinja
