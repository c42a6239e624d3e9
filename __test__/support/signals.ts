import { vi } from "vitest";

/** An AbortController that counts the listeners on its signal. */
export function countingController() {
  const controller = new AbortController();
  const { signal } = controller;
  let listeners = 0;
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  vi.spyOn(signal, "addEventListener").mockImplementation((...args: Parameters<typeof add>) => {
    listeners += 1;
    add(...args);
  });
  vi.spyOn(signal, "removeEventListener").mockImplementation(
    (...args: Parameters<typeof remove>) => {
      listeners -= 1;
      remove(...args);
    },
  );
  return { controller, signal, listeners: () => listeners };
}
