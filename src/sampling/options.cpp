// The range check of SamplingOptions, driven by the one declaration of each option in visit().

#include "kvikk/options.h"

#include <string>

#include "base/range_check.h"

namespace kvikk {
namespace {

class SamplingCheck : public RangeCheck {
 public:
  explicit SamplingCheck(size_t vocabulary)
      : RangeCheck("sampling option"), vocabulary_(vocabulary) {}

  using RangeCheck::operator();

  template <class Bound>
  void operator()(const std::vector<LogitBias>& list, const char* name, Bound min, Bound max,
                  const char*) {
    check_count(list.size(), name, kLogitBiasEntriesMax);
    for (const LogitBias& entry : list) {
      if (entry.token < 0 || static_cast<size_t>(entry.token) >= vocabulary_) {
        fail(quoted(name) + " names token " + text_of(entry.token) +
             "; the model's tokens are 0 to " + text_of(vocabulary_ - 1));
        return;
      }
      check_number(entry.bias, name, min, max, " for token " + text_of(entry.token));
    }
  }

  template <class Bound>
  void operator()(const std::vector<std::string>& list, const char* name, Bound min, Bound max,
                  const char*) {
    check_count(list.size(), name, kDryBreakersMax);
    for (const std::string& entry : list) {
      if (entry.size() < static_cast<size_t>(min) || entry.size() > static_cast<size_t>(max)) {
        fail(quoted(name) + " has a text of " + text_of(entry.size()) + " bytes; each must have " +
             text_of(min) + " to " + text_of(max));
        return;
      }
    }
  }

 private:
  void check_count(size_t count, const char* name, size_t max) {
    if (count <= max) return;
    fail(quoted(name) + " has " + text_of(count) + " entries; at most " + text_of(max) +
         " are allowed");
  }

  size_t vocabulary_;
};

}  // namespace

Status validate(const SamplingOptions& options, size_t vocabulary) {
  CHECK(vocabulary > 0);
  SamplingCheck check(vocabulary);
  options.visit(check);
  return check.take_status();
}

}  // namespace kvikk
