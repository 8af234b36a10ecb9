"""What things cost: shapes of prices, plans and their versions, quotes and previews."""
