// Loads with a hint for the caches, which the host has no use for.
#pragma once

namespace tl {

template <int hint, class T>
TL_DEVICE T load(const T* at, bool valid = true) {
  static_assert(hint == evict_first || hint == evict_last, "a hint of enum cache_hint");
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "4, 8 or 16 bytes are loaded at once");
  return valid ? *at : T{};
}

}  // namespace tl
