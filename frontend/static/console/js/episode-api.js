// What the episode browser asks of the API: the answer, or in words why there is none.
export async function asked(url) {
  try {
    const answer = await fetch(url, { headers: { Accept: "application/json" } });
    const told = await answer.json().catch(() => null);
    if (answer.ok && told) return { told, fault: "" };
    return { told: null, fault: told?.detail ?? `The server answered with ${answer.status}. Choose the episode again in a moment.` };
  } catch {
    return { told: null, fault: "The connection was lost. Choose the episode again when it is back." };
  }
}
