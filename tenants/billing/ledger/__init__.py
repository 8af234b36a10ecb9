"""Where money is: balanced movements, holds, captures, credit."""
