#pragma once
// Finds stop strings in text that comes in pieces, and holds back what could be the beginning of
// one.

#include <string>
#include <string_view>
#include <vector>

namespace kvikk {

class StopMatcher {
 public:
  StopMatcher() = default;
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Takes more text and returns what is certain to lie before any stop string.
  std::string push(std::string_view text);
  // At the end of the text: what was held back.
  std::string finish();
  // A stop string was found; text from it on is dropped.
  bool stopped() const { return stopped_; }
  // Which one; empty while none was.
  const std::string& stop() const { return stop_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string stop_;
  bool stopped_ = false;
};

}  // namespace kvikk
