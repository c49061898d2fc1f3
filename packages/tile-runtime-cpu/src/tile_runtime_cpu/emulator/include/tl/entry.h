// How the runtime calls a kernel: its parameters are read from an array of pointers, as its own type says.
// Included after the kernel's text by emulator/compiler.py.
#pragma once

namespace tl {
struct tensor_map;  // CUDA's alone
}

namespace tl_emu {

template <class T>
struct code {
  static constexpr char value = sizeof(T) == 1 ? 'b' : sizeof(T) == 2 ? 'h' : sizeof(T) == 4 ? 'i' : 'q';
};
template <class T>
struct code<T*> {
  static constexpr char value = 'p';
};
template <>
struct code<tl::tensor_map> {
  static constexpr char value = 'T';
};
template <>
struct code<float> {
  static constexpr char value = 'f';
};
template <>
struct code<double> {
  static constexpr char value = 'd';
};
template <>
struct code<tl::half_t> {
  static constexpr char value = 'H';
};
template <>
struct code<tl::bfloat16_t> {
  static constexpr char value = 'B';
};

template <class... P>
struct signature {
  static constexpr char text[] = {code<P>::value..., 0};
};

template <class T>
struct plain {
  typedef T type;
};
template <class T>
struct plain<const T> {
  typedef T type;
};

template <int... i>
struct numbers {};
template <int n, int... rest>
struct count_to : count_to<n - 1, n - 1, rest...> {};
template <int... rest>
struct count_to<0, rest...> {
  typedef numbers<rest...> type;
};

template <class... P, int... i>
__attribute__((no_sanitize("thread"))) void call(void (*kernel)(P...), void** arguments, numbers<i...>) {
  kernel(*(typename plain<P>::type*)arguments[i]...);
}
template <class... P>
__attribute__((no_sanitize("thread"))) void call(void (*kernel)(P...), void** arguments) {
  call(kernel, arguments, typename count_to<(int)sizeof...(P)>::type());
}
template <class... P>
constexpr const char* describe(void (*)(P...)) {
  return signature<typename plain<P>::type...>::text;
}

}  // namespace tl_emu

#define TL_EMU_ENTRY(name)                                                                         \
  extern "C" void tl_emu_entry_##name(void** arguments) { tl_emu::call(&name, arguments); }        \
  extern "C" const char* tl_emu_signature_##name() { return tl_emu::describe(&name); }

extern "C" int tl_emu_warp_size() { return TL_EMU_WARP_SIZE; }
