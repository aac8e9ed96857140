// Makes the automaton of a regular expression from its end to its begin: every part is built
// knowing the state that follows it.
#include <optional>
#include <string>

#include "text/regex.h"
#include "text/regex_tree.h"

namespace kvikk {

class RegexBuilder {
 public:
  using StateIndex = std::optional<uint32_t>;  // nothing: there are too many states

  explicit RegexBuilder(Regex* regex) : regex_(regex) {}

  // The first state of `tree`, which goes on to `next`.
  StateIndex build(const RegexTree& tree, uint32_t next) {
    switch (tree.kind) {
      case RegexTree::Kind::kSet:
        return add({Regex::Kind::kChar, next, 0, tree.set});
      case RegexTree::Kind::kCondition:
        return build_condition(tree, next);
      case RegexTree::Kind::kRepeat:
        return build_repeat(tree, next);
      case RegexTree::Kind::kSequence: {
        StateIndex state = next;
        for (size_t i = tree.children.size(); state && i-- > 0;) {
          state = build(tree.children[i], *state);
        }
        return state;
      }
      case RegexTree::Kind::kChoice:
        break;
    }
    StateIndex state = build(tree.children.back(), next);
    for (size_t i = tree.children.size() - 1; state && i-- > 0;) {
      const StateIndex first = build(tree.children[i], next);
      if (!first) return first;
      state = add({Regex::Kind::kChoice, *first, *state});
    }
    return state;
  }

  StateIndex add(Regex::State state) {
    if (regex_->states_.size() == Regex::kStatesMax) return std::nullopt;
    regex_->states_.push_back(state);
    return static_cast<uint32_t>(regex_->states_.size() - 1);
  }

 private:
  StateIndex build_condition(const RegexTree& tree, uint32_t next) {
    Regex::State state{static_cast<Regex::Kind>(tree.condition), next, 0, tree.set};
    if (tree.children.empty()) return add(state);
    const StateIndex end = add({Regex::Kind::kMatch});
    if (!end) return end;
    const StateIndex inner = build(tree.children[0], *end);
    if (!inner) return inner;
    state.other = *inner;
    return add(state);
  }

  StateIndex build_repeat(const RegexTree& tree, uint32_t next) {
    const RegexTree& body = tree.children[0];
    // Where a possessive repetition may end early: only where it cannot go on.
    uint32_t done = next;
    if (tree.possessive) {
      const StateIndex stop = add({Regex::Kind::kNotNext, next, 0, body.set});
      if (!stop) return stop;
      done = *stop;
    }
    const auto choice = [&](uint32_t again) {
      return tree.lazy ? Regex::State{Regex::Kind::kChoice, done, again}
                       : Regex::State{Regex::Kind::kChoice, again, done};
    };
    StateIndex state = next;
    uint32_t copies = tree.min;
    if (tree.max == UINT32_MAX) {
      const StateIndex loop = add({Regex::Kind::kChoice});
      if (!loop) return loop;
      const StateIndex again = build(body, *loop);
      if (!again) return again;
      regex_->states_[*loop] = choice(*again);
      state = copies > 0 ? again : loop;
      if (copies > 0) --copies;
    } else {
      for (uint32_t i = tree.min; state && i < tree.max; ++i) {
        state = build(body, *state);
        if (state) state = add(choice(*state));
      }
    }
    for (; state && copies > 0; --copies) state = build(body, *state);
    return state;
  }

  Regex* regex_;
};

Result<Regex> Regex::compile(std::string_view text) {
  Regex regex;
  TRY_ASSIGN(const RegexTree tree, parse_regex(text, &regex.sets_));
  RegexBuilder builder(&regex);
  const RegexBuilder::StateIndex end = builder.add({Kind::kMatch});
  const RegexBuilder::StateIndex start = builder.build(tree, *end);
  if (!start.has_value()) {
    return unsupported("regular expression '" + std::string(text) + "': it needs more than " +
                       std::to_string(kStatesMax) + " states");
  }
  regex.start_ = *start;
  regex.sets_.push_back(CharSet::word_and_fractions());
  regex.finish();
  return regex;
}

}  // namespace kvikk
