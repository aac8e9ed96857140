#include "search/vector_coder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "search/dot.h"

namespace kvikk {

namespace {

// Another seed is another rotation: recall 10@10 of 2-bit codes is .783 +- .004 over 32 seeds on
// the vectors of docs/search.md. Files keep theirs.
constexpr uint64_t kRotationSeed = 11;
constexpr size_t kEightBits = 8;
// Groups whose sigma is within this factor share the steps of a query's codes.
constexpr double kClassRatio = 0.5;
constexpr int kQueryCodeMax = 127;
constexpr size_t kQueryTail = 64;  // that kernels may read behind the last query

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// One class of one query: codes of the nearest step, 127 steps to the largest.
struct QueryClass {
  const float* values;  // of the class's dims, padded
  size_t count;
  float step;
};

float step_of(const float* values, size_t count) {
  float largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  const float step = largest / kQueryCodeMax;
  return std::isnormal(step) ? step : 0.0f;
}

// Returns the sum of the codes.
int32_t put_codes(const float* values, size_t count, float step, int8_t* out) {
  int32_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    const float code = step == 0 ? 0.0f : std::nearbyint(values[i] / step);
    out[i] = static_cast<int8_t>(
        std::clamp(code, static_cast<float>(-kQueryCodeMax), static_cast<float>(kQueryCodeMax)));
    sum += out[i];
  }
  return sum;
}

}  // namespace

uint16_t scale_to_bits(double scale) {
  if (!(scale >= 0x1p-31)) return 0;
  int exponent = 0;
  const double fraction = std::frexp(scale, &exponent);                          // in [1/2, 1)
  const auto mantissa = static_cast<uint32_t>(std::nearbyint(fraction * 2048));  // 1024 .. 2048
  const uint32_t bits = static_cast<uint32_t>(exponent + 30) * 1024 + (mantissa - 1024);
  return static_cast<uint16_t>(std::clamp<uint32_t>(bits, 1, 0xffff));
}

SearchScanArgs CodedQueries::scan_args() const {
  SearchScanArgs args;
  args.groups = groups->data();
  args.group_count = groups->size();
  args.queries = codes.data();
  args.query_stride = stride;
  args.query_count = count;
  args.classes = classes;
  args.code_sums = code_sums.data();
  args.steps = steps.data();
  args.first = first.data();
  return args;
}

void CodedQueries::pick(std::span<const uint32_t> queries, CodedQueries& out) const {
  out.count = queries.size();
  out.groups = groups;
  out.stride = stride;
  out.classes = classes;
  out.codes.resize(out.count * stride + kQueryTail);
  out.code_sums.resize(out.count * classes);
  out.steps.resize(out.count * classes);
  out.first.resize(out.count);
  out.constants.resize(out.count);
  for (size_t i = 0; i < out.count; ++i) {
    const size_t q = queries[i];
    std::memcpy(&out.codes[i * stride], &codes[q * stride], stride);
    std::copy_n(&code_sums[q * classes], classes, &out.code_sums[i * classes]);
    std::copy_n(&steps[q * classes], classes, &out.steps[i * classes]);
    out.first[i] = first[q];
    out.constants[i] = constants[q];
  }
}

VectorCoder VectorCoder::oblivious(size_t dimensions, size_t bits, Metric metric) {
  VectorTransform transform;
  transform.dimensions = dimensions;
  transform.seed = kRotationSeed;
  const double sigma = 1 / std::sqrt(static_cast<double>(dimensions));
  return VectorCoder(std::move(transform),
                     CodeLayout::make({{dimensions, bits, sigma}}, dimensions), metric);
}

VectorCoder::VectorCoder(VectorTransform transform, CodeLayout layout, Metric metric)
    : transform_(std::move(transform)), layout_(std::move(layout)), metric_(metric) {
  if (!transform_.fitted()) {
    rotation_ = std::make_unique<Rotation>(transform_.dimensions, transform_.seed);
  }
  whole_ = classed(false);
  top_ = classed(true);
  for (size_t g = 0; g < layout_.groups().size(); ++g) {
    const CodeGroup& group = layout_.groups()[g];
    const SearchGroup& search = layout_.whole()[g];
    energy_ += group.sigma * group.sigma * static_cast<double>(group.dims);
    for (size_t i = 0; i < kSearchTableSize; ++i) {
      level_values_.push_back(static_cast<float>(
          (search.table[i] - 128) * static_cast<double>(layout_.whole_units()[g]) * group.sigma));
    }
  }
}

// Classes are runs of groups of like sigma. A class of 8-bit codes is met twice: the second time
// by what rounding left of the query, since 8 bits of a query are no better than the codes.
std::vector<SearchGroup> VectorCoder::classed(bool top) const {
  const std::vector<SearchGroup>& groups = top ? layout_.top() : layout_.whole();
  std::vector<SearchGroup> out;
  for (size_t begin = 0; begin < groups.size();) {
    size_t end = begin + 1;
    while (end < groups.size() &&
           (groups[end].bits == kEightBits) == (groups[begin].bits == kEightBits) &&
           layout_.groups()[end].sigma >= kClassRatio * layout_.groups()[begin].sigma) {
      ++end;
    }
    for (size_t pass = 0; pass < (groups[begin].bits == kEightBits ? 2 : 1); ++pass) {
      out.insert(out.end(), groups.begin() + static_cast<ptrdiff_t>(begin),
                 groups.begin() + static_cast<ptrdiff_t>(end));
      out.back().ends_class = true;
    }
    begin = end;
  }
  return out;
}

size_t VectorCoder::coordinate_stride() const {
  return transform_.fitted() ? transform_.axes_stride : transform_.dimensions;
}

Status VectorCoder::make_ready(const float* rows, size_t count, size_t first_row, const char* what,
                               std::vector<float>& ready, std::vector<double>& squares) const {
  const size_t d = transform_.dimensions;
  ready.assign(rows, rows + count * d);
  squares.resize(count);
  for (size_t r = 0; r < count; ++r) {
    float* x = ready.data() + r * d;
    squares[r] = double_dot(x, x, d);
    if (!(squares[r] <= kVectorLengthMax * kVectorLengthMax)) {
      const bool finite = std::all_of(x, x + d, [](float v) { return std::isfinite(v); });
      return invalid_argument(
          std::string(what) + " " + std::to_string(first_row + r) +
          (finite ? " is longer than " + std::to_string(static_cast<uint64_t>(kVectorLengthMax))
                  : " has a NaN or an infinity"));
    }
    if (metric_ != Metric::kCosine || squares[r] == 0) continue;
    const double inverse = 1 / std::sqrt(squares[r]);
    for (size_t i = 0; i < d; ++i) x[i] = static_cast<float>(x[i] * inverse);
    squares[r] = 1;
  }
  return ok_status();
}

void VectorCoder::project(const Kernels& kernels, const float* rows, size_t count, bool take_mean,
                          std::vector<float>& out) const {
  const size_t d = transform_.dimensions;
  const size_t stride = coordinate_stride();
  out.resize(count * stride);
  if (rotation_ != nullptr) {
    for (size_t r = 0; r < count; ++r) rotation_->apply(rows + r * d, out.data() + r * stride);
    return;
  }
  std::vector<float> moved;
  if (take_mean) {
    moved.resize(count * d);
    for (size_t r = 0; r < count; ++r) {
      for (size_t i = 0; i < d; ++i) moved[r * d + i] = rows[r * d + i] - transform_.mean[i];
    }
    rows = moved.data();
  }
  kernels.search_product(
      {rows, d, transform_.axes.data(), stride, out.data(), stride, count, layout_.dims(), d});
}

// y: [layout.dims()].
void VectorCoder::encode_coordinates(const Kernels& kernels, const float* y,
                                     CodedVector& out) const {
  out.codes.resize(layout_.dims());
  out.scale = 0;
  const double squares = double_dot(y, y, layout_.dims());
  if (squares == 0) return std::fill(out.codes.begin(), out.codes.end(), uint8_t{0});
  const double spread = std::sqrt(squares / energy_);  // a coordinate is about this times sigma
  double weighted = 0;
  double products = 0;
  std::vector<float> levels(layout_.dims());
  size_t dim = 0;
  for (size_t g = 0; g < layout_.groups().size(); ++g) {
    const CodeGroup& group = layout_.groups()[g];
    const Codebook& book = layout_.book(group);
    const auto factor = static_cast<float>(1 / (spread * group.sigma));
    uint8_t* codes = out.codes.data() + dim;
    if (group.bits == kEightBits) {
      for (size_t i = 0; i < group.dims; ++i) codes[i] = book.code(y[dim + i] * factor);
    } else {
      kernels.search_codes(
          {y + dim, group.dims, factor, book.thresholds.data(), book.thresholds.size(), codes});
    }
    const float* values = level_values_.data() + g * kSearchTableSize;
    for (size_t i = 0; i < group.dims; ++i) {
      levels[i] = group.bits == kEightBits ? static_cast<float>(book.levels[codes[i]] * group.sigma)
                                           : values[codes[i]];
    }
    const double variance = group.sigma * group.sigma;
    weighted += variance * double_dot(y + dim, y + dim, group.dims);
    products += variance * double_dot(y + dim, levels.data(), group.dims);
    dim += group.dims;
  }
  out.scale = products > 0 ? scale_to_bits(weighted / products) : 0;
}

Status VectorCoder::encode(const Kernels& kernels, const float* vectors, size_t rows,
                           size_t first_row, const float* centre,
                           std::vector<CodedVector>& out) const {
  CHECK(rows <= kCodedRowsMax);
  std::vector<float> ready;
  std::vector<float> coordinates;
  std::vector<double> squares;
  TRY(make_ready(vectors, rows, first_row, "vector", ready, squares));
  const size_t d = transform_.dimensions;
  for (size_t r = 0; r < rows && centre != nullptr; ++r) {
    for (size_t i = 0; i < d; ++i) ready[r * d + i] -= centre[i];
  }
  project(kernels, ready.data(), rows, true, coordinates);
  out.resize(rows);
  for (size_t r = 0; r < rows; ++r) {
    encode_coordinates(kernels, coordinates.data() + r * coordinate_stride(), out[r]);
    out[r].norm = static_cast<float>(squares[r]);
  }
  return ok_status();
}

// y: [layout.dims()]
void VectorCoder::code_query(const float* y, bool top, size_t index, CodedQueries& out) const {
  const std::vector<float>& units = top ? layout_.top_units() : layout_.whole_units();
  const float factor = metric_ == Metric::kL2 ? 2.0f : 1.0f;
  // The query times the value of an integer step, padded as the planes are.
  std::vector<float> values(layout_.padded_dims());
  size_t from = 0;
  size_t to = 0;
  for (size_t g = 0; g < layout_.groups().size(); ++g) {
    const CodeGroup& group = layout_.groups()[g];
    const auto unit = static_cast<float>(group.sigma * units[g] * factor);
    for (size_t i = 0; i < group.dims; ++i) values[to + i] = y[from + i] * unit;
    from += group.dims;
    to += group.padded();
  }
  int8_t* codes = out.codes.data() + index * out.stride;
  double middle = 0;  // 8-bit codes stand for their value less 127.5, not 128
  size_t at = 0;      // in values
  size_t put = 0;     // in codes
  size_t number = 0;
  bool again = false;
  for (size_t g = 0; g < out.groups->size(); ++g) {
    size_t count = 0;
    const bool eight = (*out.groups)[g].bits == kEightBits;
    for (;; ++g) {
      count += (*out.groups)[g].dims;
      if ((*out.groups)[g].ends_class) break;
    }
    const float step = step_of(values.data() + at, count);
    const int32_t sum = put_codes(values.data() + at, count, step, codes + put);
    out.steps[index * out.classes + number] = step;
    out.code_sums[index * out.classes + number] = sum;
    if (eight) middle += 0.5 * static_cast<double>(sum) * static_cast<double>(step);
    for (size_t i = 0; eight && i < count; ++i) {
      values[at + i] -= static_cast<float>(codes[put + i]) * step;
    }
    again = eight && !again;
    if (!again) at += count;
    put += count;
    ++number;
  }
  out.first[index] = static_cast<float>(middle);
}

Result<CodedQueries> VectorCoder::code_queries(const Kernels& kernels, const float* queries,
                                               size_t count, bool top) const {
  CHECK(count >= 1);
  std::vector<float> ready;
  std::vector<float> coordinates;
  std::vector<double> squares;
  TRY(make_ready(queries, count, 0, "query", ready, squares));
  project(kernels, ready.data(), count, false, coordinates);
  CodedQueries out;
  out.count = count;
  out.groups = top ? &top_ : &whole_;
  for (const SearchGroup& group : *out.groups) {
    out.stride += group.dims;
    out.classes += group.ends_class ? 1 : 0;
  }
  out.stride = round_up(out.stride, 64);
  out.codes.resize(count * out.stride + kQueryTail);
  out.code_sums.resize(count * out.classes);
  out.steps.resize(count * out.classes);
  out.first.resize(count);
  out.constants.resize(count);
  const size_t d = transform_.dimensions;
  for (size_t q = 0; q < count; ++q) {
    code_query(coordinates.data() + q * coordinate_stride(), top, q, out);
    double constant =
        transform_.fitted() ? double_dot(ready.data() + q * d, transform_.mean.data(), d) : 0;
    if (metric_ == Metric::kL2) constant = 2 * constant - squares[q];
    out.constants[q] = static_cast<float>(constant);
  }
  return out;
}

void VectorCoder::decode(const CodedVector& coded, float* out) const {
  const size_t d = transform_.dimensions;
  const float scale =
      coded.scale == 0
          ? 0.0f
          : std::bit_cast<float>((static_cast<uint32_t>(coded.scale) << 13) + (96u << 23));
  std::vector<float> y(layout_.dims());
  size_t dim = 0;
  for (size_t g = 0; g < layout_.groups().size(); ++g) {
    const CodeGroup& group = layout_.groups()[g];
    for (size_t i = 0; i < group.dims; ++i, ++dim) {
      const uint8_t code = coded.codes[dim];
      const double level = group.bits == kEightBits ? layout_.book(group).levels[code] * group.sigma
                                                    : level_values_[g * kSearchTableSize + code];
      y[dim] = static_cast<float>(level * scale);
    }
  }
  if (rotation_ != nullptr) return rotation_->invert(y.data(), out);
  for (size_t i = 0; i < d; ++i) {
    const float* axes = transform_.axes.data() + i * transform_.axes_stride;
    out[i] = transform_.mean[i] + static_cast<float>(double_dot(axes, y.data(), y.size()));
  }
}

}  // namespace kvikk
