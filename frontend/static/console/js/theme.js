// Runs before the first paint, so that a stored choice never flashes. No attribute means: follow the system.
try {
  const stored = localStorage.getItem("joynexus-theme");
  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
} catch { /* storage refused: follow the system */ }
