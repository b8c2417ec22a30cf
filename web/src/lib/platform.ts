// How the key that goes with commands is written on this machine.

const isMac = /Mac|iPhone|iPad/.test(navigator.userAgent);

export const MOD = isMac ? "⌘" : "Ctrl ";
export const SEND_KEYS = isMac ? "⌘↵" : "Ctrl ↵";
