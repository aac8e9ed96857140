#pragma once
// Text in the making.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "text/template_value.h"

namespace kvikk::jinja {

// Text that grows under the string limit and pays a step for every few bytes.
class Text {
 public:
  explicit Text(Budget& budget) : budget_(budget) {}
  void append(std::string_view part) {
    if (text_.size() + part.size() > budget_.limits().string_bytes_max) {
      budget_.check_string(text_.size() + part.size());
    }
    text_.append(part);
    if (text_.size() - paid_ >= kPayBytes) pay();
  }
  void append(char c) { append(std::string_view(&c, 1)); }
  void repeat(std::string_view part, uint64_t times);
  size_t size() const { return text_.size(); }
  std::string take() {
    pay();
    return std::move(text_);
  }
  Budget& budget() { return budget_; }

 private:
  static constexpr size_t kPayBytes = 4096;
  void pay() {
    budget_.step_bytes(text_.size() - paid_);
    paid_ = text_.size();
  }
  Budget& budget_;
  size_t paid_ = 0;
  std::string text_;
};

}  // namespace kvikk::jinja
