#pragma once
// The values that a template computes with. They follow Python: None, bool, int, float, str, list,
// tuple, dict and a few runtime objects (template_objects.h). Strings and containers never change
// once made (the sandbox forbids it), so a value is shared by reference count and copying one is
// cheap. Counts are atomic because the constants of a parsed template are shared between threads.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "text/template.h"
#include "text/template_error.h"

namespace kvikk::jinja {

// Hold every JSON integer and what templates make of them.
__extension__ typedef __int128 Int;
__extension__ typedef unsigned __int128 UnsignedInt;

class Object;
struct Cyclic;

// Steps and memory of one render, and the graveyard: dead objects are deleted one after the other,
// so that a chain of any length needs no stack.
class Budget {
 public:
  explicit Budget(const TemplateLimits& limits) : limits_(limits), steps_left_(limits.steps_max) {}
  Budget(const Budget&) = delete;
  ~Budget();

  const TemplateLimits& limits() const { return limits_; }
  void step(uint64_t count = 1) {
    if (count > steps_left_) out_of_steps();
    steps_left_ -= count;
  }
  // Prices, so that no step takes much longer than another: bytes that are copied or searched,
  // characters that are looked at one by one, items that are copied.
  void step_bytes(size_t bytes) { step(bytes / 32 + 1); }
  void step_characters(size_t bytes) { step(bytes / 4 + 1); }
  void step_items(size_t items) { step(items / 2 + 1); }
  void check_items(size_t items) const;
  void check_string(size_t bytes) const;

 private:
  friend class Object;
  friend struct Cyclic;
  [[noreturn]] void out_of_steps() const;
  void allocate(size_t bytes);
  void bury(const Object* object) noexcept;

  TemplateLimits limits_;
  uint64_t steps_left_;
  size_t bytes_ = 0;
  const Object* dead_ = nullptr;
  bool burying_ = false;
  Cyclic* cyclic_ = nullptr;
};

// Base of everything on the heap. `budget` is null for the constants of a parsed template.
class Object {
 public:
  Object(Budget* budget, size_t bytes);
  Object(const Object&) = delete;
  virtual ~Object();
  void retain() const noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() const noexcept;

 private:
  friend class Budget;
  mutable std::atomic<uint32_t> references_{0};
  Budget* budget_;
  size_t bytes_;
  mutable const Object* next_dead_ = nullptr;
};

enum class Kind : uint8_t {
  kMissing,  // a variable that nothing set, a parameter that nothing passed; never seen by
             // templates
  kNone,
  kBool,
  kInt,
  kFloat,
  kUndefined,  // from here on: an object
  kString,
  kList,
  kTuple,
  kDict,
  kDictView,
  kRange,
  kIterator,
  kNamespace,
  kMacro,
  kLoop,
  kFunction,
  kMethod,
  kCycler,
  kJoiner,
};

class Value {
 public:
  Value() noexcept : integer_(0) {}
  Value(Kind kind, Object* object) noexcept : kind_(kind), object_(object) { object->retain(); }
  Value(const Value& other) noexcept : kind_(other.kind_), integer_(0) {
    assign(other);
    if (is_object()) object_->retain();
  }
  Value(Value&& other) noexcept : kind_(other.kind_), integer_(0) {
    assign(other);
    other.kind_ = Kind::kMissing;
  }
  Value& operator=(const Value& other) noexcept { return *this = Value(other); }
  Value& operator=(Value&& other) noexcept {
    if (this == &other) return *this;
    if (is_object()) object_->release();
    kind_ = std::exchange(other.kind_, Kind::kMissing);
    assign_as(kind_, other);
    return *this;
  }
  ~Value() {
    if (is_object()) object_->release();
  }

  static Value none() noexcept { return Value(Kind::kNone); }
  static Value boolean(bool value) noexcept {
    Value v(Kind::kBool);
    v.integer_ = value;
    return v;
  }
  static Value integer(Int value) noexcept {
    Value v(Kind::kInt);
    v.integer_ = value;
    return v;
  }
  static Value real(double value) noexcept {
    Value v(Kind::kFloat);
    v.real_ = value;
    return v;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_missing() const { return kind_ == Kind::kMissing; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_object() const { return kind_ >= Kind::kUndefined; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  Int as_int() const { return integer_; }  // kInt or kBool
  double as_real() const { return kind_ == Kind::kFloat ? real_ : static_cast<double>(integer_); }
  Object* object() const { return object_; }
  template <class T>
  T& as() const {
    return static_cast<T&>(*object_);
  }

 private:
  explicit Value(Kind kind) noexcept : kind_(kind), integer_(0) {}
  void assign(const Value& other) noexcept { assign_as(other.kind_, other); }
  void assign_as(Kind kind, const Value& other) noexcept {
    if (kind >= Kind::kUndefined) {
      object_ = other.object_;
    } else if (kind == Kind::kFloat) {
      real_ = other.real_;
    } else {
      integer_ = other.integer_;
    }
  }

  Kind kind_ = Kind::kMissing;
  union {
    Int integer_;
    double real_;
    Object* object_;
  };
};

}  // namespace kvikk::jinja
