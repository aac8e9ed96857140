// The Python module `kvikk`: the vector index for NumPy arrays. Arrays become float32 here, what is
// wrong with them becomes a TypeError or a ValueError, and other threads of Python run while the
// index works.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "index_bytes.h"
#include "kvikk/search.h"

namespace py = pybind11;

namespace kvikk {
namespace {

using FloatArray = py::array_t<float, py::array::c_style | py::array::forcecast>;
using IdArray = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;

[[noreturn]] void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw py::error_already_set();
}

void check(const Status& status) {
  if (status.ok()) return;
  PyObject* type = PyExc_ValueError;
  if (status.code() == StatusCode::kNotFound) type = PyExc_FileNotFoundError;
  if (status.code() == StatusCode::kIo) type = PyExc_OSError;
  if (status.code() == StatusCode::kExhausted) type = PyExc_MemoryError;
  raise(type, status.message());
}

template <class T>
T check(Result<T> result) {
  check(result.status());
  return std::move(*result);
}

// f() while other threads may run Python.
template <class F>
auto released(F&& f) {
  py::gil_scoped_release release;
  return f();
}

// Numbers of one of these kinds (NumPy's letters), whatever object holds them.
py::array numbers(const py::object& object, const char* what, const std::string& kinds) {
  py::array array = py::array::ensure(object);
  if (!array || kinds.find(array.dtype().kind()) == std::string::npos) {
    const std::string is = array ? "one of " + std::string(py::str(array.dtype())) : "none";
    raise(PyExc_TypeError, std::string(what) + " must be an array of " +
                               (kinds == "iu" ? "whole " : "") + "numbers, this is " + is);
  }
  return array;
}

// Rows [n, dimensions]; one vector is one row.
FloatArray rows(const py::object& object, const char* what, size_t dimensions) {
  const py::array array = numbers(object, what, "fiub");
  const auto axes = array.ndim();
  const bool fits =
      (axes == 1 || axes == 2) && static_cast<size_t>(array.shape(axes - 1)) == dimensions;
  if (!fits) {
    std::string shape;
    for (py::ssize_t i = 0; i < axes; ++i) {
      shape += (i > 0 ? ", " : "") + std::to_string(array.shape(i));
    }
    raise(PyExc_ValueError, std::string(what) + " must have the shape [n, " +
                                std::to_string(dimensions) + "], not [" + shape + "]");
  }
  FloatArray out = FloatArray::ensure(array);
  if (!out) throw py::error_already_set();
  return out;
}

std::span<const float> span_of(const FloatArray& array) {
  return {array.data(), static_cast<size_t>(array.size())};
}

// A copy: while the index works on it, other threads could change the array.
std::vector<float> copy_of(const FloatArray& array) {
  return {array.data(), array.data() + array.size()};
}

std::vector<int64_t> integers(const py::object& object, const char* what) {
  const py::array array = numbers(object, what, "iu");
  if (array.dtype().kind() == 'u' && array.itemsize() == sizeof(uint64_t)) {
    const auto wide =
        py::array_t<uint64_t, py::array::c_style | py::array::forcecast>::ensure(array);
    if (!wide) throw py::error_already_set();
    for (py::ssize_t i = 0; i < wide.size(); ++i) {
      if (wide.data()[i] > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        raise(PyExc_ValueError, std::string(what) + " must be below 2^63");
      }
    }
  }
  const IdArray out = IdArray::ensure(array);
  if (!out) throw py::error_already_set();
  return {out.data(), out.data() + out.size()};
}

template <class T>
T choice(const std::string& text, const char* what,
         std::initializer_list<std::pair<const char*, T>> choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (text == name) return value;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  raise(PyExc_ValueError, std::string(what) + " is '" + text + "'; it must be one of " + names);
}

// Of a search: ids [rows, k] with -1, scores with NaN, where there are fewer.
py::tuple arrays_of(const Neighbors& found, size_t k) {
  const auto width = static_cast<py::ssize_t>(k);
  py::array_t<int64_t> ids({static_cast<py::ssize_t>(found.size()), width});
  py::array_t<float> scores({static_cast<py::ssize_t>(found.size()), width});
  int64_t* id = ids.mutable_data();
  float* score = scores.mutable_data();
  for (const std::vector<Neighbor>& neighbors : found) {
    for (size_t i = 0; i < k; ++i) {
      *id++ = i < neighbors.size() ? neighbors[i].id : -1;
      *score++ = i < neighbors.size() ? neighbors[i].score : NAN;
    }
  }
  return py::make_tuple(ids, scores);
}

using Ranges = std::vector<std::tuple<size_t, int64_t, int64_t>>;

// What may be found, from the arguments of a search; null: anything.
std::unique_ptr<IndexFilter> filter_of(const py::object& only, const Ranges& ranges) {
  if (only.is_none() && ranges.empty()) return nullptr;
  auto filter = std::make_unique<IndexFilter>();
  if (!only.is_none()) filter->ids = integers(only, "only");
  for (const auto& [attribute, min, max] : ranges) filter->ranges.push_back({attribute, min, max});
  return filter;
}

class PyIndex {
 public:
  PyIndex(size_t dimensions, int bits, const std::string& metric, const std::string& keep,
          size_t attributes, int threads) {
    IndexOptions options;
    options.dimensions = dimensions;
    options.bits = bits;
    options.metric = choice<Metric>(
        metric, "metric",
        {{"ip", Metric::kInnerProduct}, {"cos", Metric::kCosine}, {"l2", Metric::kL2}});
    options.kept = choice<KeptVectors>(
        keep, "keep",
        {{"none", KeptVectors::kNone}, {"int8", KeptVectors::kInt8}, {"f16", KeptVectors::kHalf}});
    options.attributes = attributes;
    index_ = check(VectorIndex::create(options, runtime(threads)));
    next_id_ = 0;
  }
  static PyIndex load(const std::string& path, int threads) {
    return PyIndex(check(VectorIndex::open(path, runtime(threads))), -1);
  }
  static PyIndex from_state(const py::tuple& state) {
    if (state.size() != 3) raise(PyExc_ValueError, "this is not the state of an index");
    const auto bytes = state[0].cast<std::string>();
    return PyIndex(check(index_from_bytes(bytes, runtime(state[2].cast<int>()))),
                   state[1].cast<int64_t>());
  }
  py::tuple state() const {
    const std::string bytes = check(released([&] { return index_to_bytes(*index_); }));
    return py::make_tuple(py::bytes(bytes), next_id_, 0);
  }

  void fit(const py::object& sample) {
    const std::vector<float> vectors = copy_of(rows(sample, "a sample", dimensions()));
    check(released([&] { return index_->fit(vectors); }));
  }
  void make_lists(const py::object& sample, size_t lists) {
    const std::vector<float> vectors = copy_of(rows(sample, "a sample", dimensions()));
    check(released([&] { return index_->make_lists(vectors, lists); }));
  }
  void refit() {
    check(released([&] { return index_->refit(); }));
  }

  void add(const py::object& added, const py::object& ids, const py::object& attributes) {
    const std::vector<float> vectors = copy_of(rows(added, "vectors", dimensions()));
    const size_t n = vectors.size() / dimensions();
    std::vector<int64_t> numbers;
    int64_t next = next_id_;
    if (!ids.is_none()) {
      numbers = integers(ids, "ids");
      const auto largest = std::max_element(numbers.begin(), numbers.end());
      if (largest != numbers.end() && next >= 0) {
        next = *largest == std::numeric_limits<int64_t>::max() ? -1 : std::max(next, *largest + 1);
      }
    } else if (next < 0) {
      raise(PyExc_ValueError, "vectors need ids: this index does not know which are taken");
    } else {
      for (size_t i = 0; i < n; ++i) numbers.push_back(next++);
    }
    std::vector<int64_t> values;
    if (!attributes.is_none()) values = integers(attributes, "attributes");
    check(released([&] { return index_->add(vectors, numbers, values); }));
    next_id_ = next;
  }
  size_t remove(const py::object& ids) {
    const std::vector<int64_t> numbers = integers(ids, "ids");
    return check(released([&] { return index_->remove(numbers); }));
  }
  void compact() {
    check(released([&] { return index_->compact(); }));
  }

  py::tuple search(const py::object& queries, size_t k, size_t rerank, bool staged,
                   size_t candidates, size_t probes, const py::object& only,
                   const Ranges& ranges) const {
    const FloatArray vectors = rows(queries, "queries", dimensions());
    const auto filter = filter_of(only, ranges);
    const SearchOptions options{k, rerank, staged, candidates, filter.get(), probes};
    const Neighbors found =
        check(released([&] { return index_->search(span_of(vectors), options); }));
    return arrays_of(found, k);
  }
  py::list range_search(const py::object& queries, float score, const py::object& only,
                        const Ranges& ranges) const {
    const FloatArray vectors = rows(queries, "queries", dimensions());
    const auto filter = filter_of(only, ranges);
    const Neighbors found = check(
        released([&] { return index_->range_search(span_of(vectors), score, filter.get()); }));
    py::list out;
    for (const std::vector<Neighbor>& neighbors : found) {
      const py::tuple both = arrays_of({neighbors}, neighbors.size());
      out.append(py::make_tuple(both[0].attr("reshape")(-1), both[1].attr("reshape")(-1)));
    }
    return out;
  }
  size_t probes_for(const py::object& queries, double recall, size_t k) const {
    const FloatArray vectors = rows(queries, "queries", dimensions());
    return check(released([&] { return index_->probes_for(span_of(vectors), recall, {.k = k}); }));
  }

  void save(const std::string& path) {
    check(released([&] { return index_->save(path); }));
  }
  void verify() const {
    check(released([&] { return index_->verify(); }));
  }
  size_t size() const { return index_->info().vectors; }
  size_t dimensions() const { return index_->info().options.dimensions; }
  py::dict info() const {
    const IndexInfo info = index_->info();
    py::dict out;
    out["vectors"] = info.vectors;
    out["removed"] = info.removed;
    out["dimensions"] = info.options.dimensions;
    out["bits"] = info.options.bits;
    out["attributes"] = info.options.attributes;
    out["fitted"] = info.fitted;
    out["lists"] = info.lists;
    out["probes"] = info.probes;
    out["code_bytes_per_vector"] = info.code_bytes;
    out["bytes_per_vector"] = info.bytes_per_vector;
    out["kept_bytes_per_vector"] = info.kept_bytes;
    out["cpu_level"] = info.cpu_level;
    return out;
  }

 private:
  PyIndex(std::unique_ptr<VectorIndex> index, int64_t next_id)
      : index_(std::move(index)), next_id_(next_id) {}
  static IndexRuntime runtime(int threads) { return {threads, ""}; }

  std::unique_ptr<VectorIndex> index_;
  int64_t next_id_;  // of vectors without ids; -1: not known
};

}  // namespace
}  // namespace kvikk

PYBIND11_MODULE(kvikk, m) {
  using kvikk::PyIndex;
  using py::arg;
  m.doc() = "A vector index: a few bits a dimension, searchable from the first vector on.";
  const py::object none = py::none();
  py::class_<PyIndex>(m, "VectorIndex")
      .def(py::init<size_t, int, const std::string&, const std::string&, size_t, int>(),
           arg("dimensions"), py::kw_only(), arg("bits") = 4, arg("metric") = "ip",
           arg("keep") = "none", arg("attributes") = 0, arg("threads") = 0)
      .def_static("load", &PyIndex::load, arg("path"), py::kw_only(), arg("threads") = 0)
      .def("fit", &PyIndex::fit, arg("sample"),
           "Fits the codes to a uniform sample, while the index is empty.")
      .def("make_lists", &PyIndex::make_lists, arg("sample"), arg("lists"),
           "Shares the vectors out over lists; a search then looks into some.")
      .def("refit", &PyIndex::refit, "Fits the codes to the vectors that are kept.")
      .def("add", &PyIndex::add, arg("vectors"), arg("ids") = none, arg("attributes") = none,
           "Adds rows; an id that is there is replaced. Without ids they are numbered.")
      .def("remove", &PyIndex::remove, arg("ids"), "Returns how many were there.")
      .def("compact", &PyIndex::compact, "Gives back the room of removed vectors.")
      .def("search", &PyIndex::search, arg("queries"), arg("k") = 10, py::kw_only(),
           arg("rerank") = 0, arg("staged") = false, arg("candidates") = 0, arg("probes") = 0,
           arg("only") = none, arg("ranges") = kvikk::Ranges(),
           "Returns ids and scores, [queries, k], best first; -1 and NaN where there are fewer. "
           "only: ids that may be found; ranges: (attribute, min, max).")
      .def("range_search", &PyIndex::range_search, arg("queries"), arg("score"), py::kw_only(),
           arg("only") = none, arg("ranges") = kvikk::Ranges(),
           "For each query (ids, scores) of all with a score at least as good.")
      .def("probes_for", &PyIndex::probes_for, arg("queries"), arg("recall"), arg("k") = 10,
           "How many lists such queries must look into to find this part.")
      .def("save", &PyIndex::save, arg("path"))
      .def("verify", &PyIndex::verify, "Compares every checksum of a loaded index.")
      .def("info", &PyIndex::info)
      .def_property_readonly("dimensions", &PyIndex::dimensions)
      .def("__len__", &PyIndex::size)
      .def("__repr__",
           [](const PyIndex& index) {
             return "<kvikk.VectorIndex of " + std::to_string(index.size()) + " x " +
                    std::to_string(index.dimensions()) + ">";
           })
      .def(py::pickle([](const PyIndex& index) { return index.state(); }, &PyIndex::from_state));
}
