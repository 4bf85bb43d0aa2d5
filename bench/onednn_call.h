// What the programs that time the library's calls share: engine, stream and filled memory.
// Thread safety: none.
#pragma once

#include <cstddef>

#include <oneapi/dnnl/dnnl.hpp>

inline dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

inline dnnl::stream& Stream() {
  static dnnl::stream stream(Engine());
  return stream;
}

// f32 holds small whole numbers above zero, other types whatever was there.
inline dnnl::memory Filled(const dnnl::memory::desc& desc, bool f32 = true) {
  dnnl::memory m(desc, Engine());
  auto* data = static_cast<float*>(m.get_data_handle());
  const size_t count = f32 ? desc.get_size() / sizeof(float) : 0;
  for (size_t i = 0; i < count; ++i) data[i] = static_cast<float>(i % 13) + 1;
  return m;
}
